// Package record is the form of what a history's database holds, between an event and the bytes
// under a key. A version is stored whole, or as the difference to the one before it. An entry of
// the timeline is stored as a summary of what the version changed.
//
// It knows no database: it makes bytes and reads them. Bytes that it did not make are an error.
package record

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// A stored version is
//
//	kind | op | time | text                                                 kind Whole
//	kind | op | time | base | checksum of the text | its length | delta     kind Delta
//	kind | op | time | length | version of the base | text                  kind storedRebased
//
// time is seconds (varint) and nanoseconds (uvarint). base is by how much the version of the base
// is lower than this one's: the base is always the version right before. The text is
//
//	flags | { code | length | value } | 0 | data
//
// with the attributes that follow neither from the key nor from the unit nor from a flag.
const (
	// Whole and Delta are the kinds that a Header has.
	Whole = 1
	Delta = 2
	// storedRebased was a difference to a version that retention has removed.
	storedRebased = 3
)

// TimeOf returns where an event stands in the timeline.
func TimeOf(e *event.Event) time.Time {
	if e.Time.IsZero() {
		return e.Observed
	}
	return e.Time
}

// Flags of a text. The first ones say that an attribute has the value that Derive gives.
const (
	derivedID = 1 << iota
	derivedType
	derivedSubject
	derivedPartitionKey
	derivedSequence
	isInitial
	isInferred
	// previousIsBase: the attribute previous is the version of the base.
	previousIsBase
	hasNoTime
)

// attributeNames have the codes 2 and above, in their order: append only. Code 1 is of any other
// name, which follows. 0 ends the attributes.
var attributeNames = []string{
	"id", "type", "subject", "partitionkey", "sequence", "uid", "resourceversion", "previous",
	"timesource", "manager", "managersubresource", "manageroperation", "lastmanager", "cause",
	"apiversion", "kind", "datacontenttype", "traceparent", "owners", "ownerkind", "ownername",
	"oversize", "originalsize", "originalsha256", "dataref", "deadletterreason",
	"deadletterattempts", "truncated", "notbefore", "changed",
}

const (
	codeEnd   = 0
	codeNamed = 1
	codeFirst = 2
)

var attributeCodes = func() map[string]uint64 {
	codes := map[string]uint64{}
	for i, name := range attributeNames {
		codes[name] = uint64(i) + codeFirst
	}
	return codes
}()

// opCodes are the ops of objects: append only. 0 is any other, whose type is an attribute.
var opCodes = []event.Op{"", event.Added, event.Updated, event.Deleted, event.Synced}

// OpCode returns how an op is stored; 0 for one that no object has.
func OpCode(op event.Op) byte { return byte(max(slices.Index(opCodes, op), 0)) }

// DerivedAttributes are attributes as they follow from an event's others.
type DerivedAttributes struct{ id, typ, subject, partitionKey, sequence string }

// Derive makes them of an event.
func Derive(u *Unit, e *event.Event, seq keys.Sequence) (d DerivedAttributes) {
	t := resource.Type{Group: u.Group, Resource: u.Resource, Namespaced: e.Namespace != ""}
	t.Version = e.APIVersion[strings.LastIndexByte(e.APIVersion, '/')+1:]
	d.subject = t.ObjectPath(resource.MakeKey(e.Namespace, e.Name))
	// The others are parts of one text, as this is done for each version.
	b := append(append(make([]byte, 0, 256), e.UID...), '/')
	if e.Op == event.Deleted {
		b = append(b, "deleted"...)
	} else {
		b = seq.AppendResourceVersion(b)
	}
	id := len(b)
	b = append(append(b, "dev.kubebridge.resource."...), e.Op...)
	typ := len(b)
	b = append(b, u.Resource...)
	if u.Group != "" {
		b = append(append(b, '.'), u.Group...)
	}
	b = append(append(append(append(b, '/'), e.Namespace...), '/'), e.Name...)
	partitionKey := len(b)
	text := string(seq.AppendText(b))
	d.id, d.typ, d.partitionKey, d.sequence = text[:id], text[id:typ], text[typ:partitionKey],
		text[partitionKey:]
	return d
}

// ReadNotice reads the event of a notice.
func ReadNotice(document []byte) (event.Event, error) {
	e, err := event.ParseStructured(bytes.Clone(document))
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return e, err
}

// AppendText appends the text of an event. data takes the place of the event's own. base is the
// version of the base, "" for none.
func AppendText(
	dst []byte, d *DerivedAttributes, e *event.Event, seq keys.Sequence, data []byte, base string,
) []byte {
	flags := uint64(0)
	for _, is := range []struct {
		flag uint64
		set  bool
	}{
		{derivedID, e.ID == d.id},
		{derivedType, e.Type == d.typ},
		{derivedSubject, e.Subject == d.subject},
		{derivedPartitionKey, e.PartitionKey == d.partitionKey},
		{derivedSequence, e.Sequence == d.sequence},
		{isInitial, e.Initial},
		{isInferred, e.Inferred},
		{previousIsBase, base != "" && e.Previous == base},
		{hasNoTime, e.Time.IsZero()},
	} {
		if is.set {
			flags |= is.flag
		}
	}
	dst = binary.AppendUvarint(dst, flags)
	put := func(name, value string) { dst = appendAttribute(dst, name, value) }
	for _, a := range []struct {
		flag        uint64 // that stands for it
		name, value string
	}{
		{derivedID, "id", e.ID},
		{derivedType, "type", e.Type},
		{derivedSubject, "subject", e.Subject},
		{derivedPartitionKey, "partitionkey", e.PartitionKey},
		{derivedSequence, "sequence", e.Sequence},
		{0, "uid", e.UID},
		{previousIsBase, "previous", e.Previous},
		{0, "changed", e.Changed},
		{0, "timesource", e.TimeSource},
		{0, "manager", e.Manager},
		{0, "managersubresource", e.ManagerSubresource},
		{0, "manageroperation", e.ManagerOperation},
		{0, "lastmanager", e.LastManager},
		{0, "cause", e.Cause},
		{0, "apiversion", e.APIVersion},
		{0, "kind", e.Kind},
		{0, "datacontenttype", e.DataType},
		{0, "traceparent", e.TraceParent},
	} {
		if a.value != "" && flags&a.flag == 0 {
			put(a.name, a.value)
		}
	}
	if e.ResourceVersion != seq.ResourceVersion() {
		put("resourceversion", e.ResourceVersion)
	}
	for _, a := range e.Extensions {
		put(a.Name, a.Value)
	}
	if !e.NotBefore.IsZero() {
		put("notbefore", e.NotBefore.UTC().Format(time.RFC3339Nano))
	}
	return append(append(dst, codeEnd), data...)
}

func appendAttribute(dst []byte, name, value string) []byte {
	code, known := attributeCodes[name]
	if !known {
		dst = binary.AppendUvarint(append(dst, codeNamed), uint64(len(name)))
		dst = append(dst, name...)
	} else {
		dst = binary.AppendUvarint(dst, code)
	}
	return append(binary.AppendUvarint(dst, uint64(len(value))), value...)
}

// ErrUnreadable is in the error for bytes that are no record.
var ErrUnreadable = errors.New("a stored version can't be read")

// ReadText reads a text into an event. The event has the fields that follow from unit and key. Data
// is a part of text.
func ReadText(e *event.Event, u *Unit, seq keys.Sequence, text []byte, base string) error {
	flags, err := readAttributes(e, seq, text, base)
	if err != nil {
		return err
	}
	d := Derive(u, e, seq)
	for _, a := range []struct {
		flag  uint64
		field *string
		value string
	}{
		{derivedID, &e.ID, d.id},
		{derivedType, &e.Type, d.typ},
		{derivedSubject, &e.Subject, d.subject},
		{derivedPartitionKey, &e.PartitionKey, d.partitionKey},
		{derivedSequence, &e.Sequence, d.sequence},
	} {
		if flags&a.flag != 0 {
			*a.field = a.value
		}
	}
	return nil
}

// ReadShort is ReadText without the attributes that follow from others: a timeline has no use for
// them, and they cost a tenth of reading it.
func ReadShort(e *event.Event, seq keys.Sequence, text []byte, base string) error {
	_, err := readAttributes(e, seq, text, base)
	return err
}

func readAttributes(
	e *event.Event, seq keys.Sequence, text []byte, base string,
) (flags uint64, err error) {
	flags, n := binary.Uvarint(text)
	if n <= 0 {
		return 0, ErrUnreadable
	}
	text = text[n:]
	e.ResourceVersion = seq.ResourceVersion()
	for {
		code, rest, ok := cutUvarint(text, codeFirst+len(attributeNames)-1)
		if !ok {
			return 0, ErrUnreadable
		}
		text = rest
		if code == codeEnd {
			break
		}
		var name, value string
		if code == codeNamed {
			if name, text, ok = cutText(text); !ok {
				return 0, ErrUnreadable
			}
		} else {
			name = attributeNames[code-codeFirst]
		}
		if value, text, ok = cutText(text); !ok {
			return 0, ErrUnreadable
		}
		if err := e.Set(name, value); err != nil {
			return 0, errors.Join(ErrUnreadable, err)
		}
	}
	if flags&previousIsBase != 0 {
		e.Previous = base
	}
	e.Initial, e.Inferred = flags&isInitial != 0, flags&isInferred != 0
	if flags&hasNoTime != 0 {
		e.Time = time.Time{}
	}
	if len(text) > 0 {
		e.Data = text
	}
	return flags, nil
}

// cutText reads a text behind its length.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	n, rest, ok := cutUvarint(b, len(b))
	if !ok || n > len(rest) {
		return "", nil, false
	}
	return string(rest[:n]), rest[n:], true
}

// Header is what is known of a stored version without its text.
type Header struct {
	Kind byte
	Op   event.Op
	Time time.Time
	Base string // of storedRebased, the version of what was its base
	// Of a delta.
	Back     uint64 // by how much the base's version is lower
	checksum uint32
	length   int
	Payload  []byte // text or delta
}

// MaxDeltas is how many differences follow each other, at most: a whole version comes after them.
// Twice as many save a tenth of the space, half as many cost a quarter more.
const MaxDeltas = 31

// maxText bounds what is allocated for a text whose length a record gives. No broker takes more.
const maxText = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHeader(dst []byte, kind byte, op event.Op, at time.Time) []byte {
	dst = append(dst, kind, OpCode(op))
	if at.IsZero() {
		return append(dst, 0, 0)
	}
	return binary.AppendUvarint(binary.AppendVarint(dst, at.Unix()), uint64(at.Nanosecond()))
}

// AppendWhole appends a version stored whole.
func AppendWhole(dst []byte, op event.Op, at time.Time, text []byte) []byte {
	return append(appendHeader(dst, Whole, op, at), text...)
}

// AppendRebased appends a version stored whole whose base was another: what follows is a difference
// to the text, which must not change. So the text stays, and the version of the base comes before
// it.
func AppendRebased(dst []byte, h *Header, base string, text []byte) []byte {
	dst = appendHeader(dst, storedRebased, h.Op, h.Time)
	return append(appendCounted(dst, base), text...)
}

// AppendDelta appends a version stored as a difference. back is by how much the version of the base
// is lower.
func (d *Encoder) AppendDelta(
	dst []byte, op event.Op, at time.Time, back uint64, base, text []byte,
) []byte {
	dst = appendHeader(dst, Delta, op, at)
	dst = binary.AppendUvarint(dst, back)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(text, castagnoli))
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return d.append(dst, base, text)
}

// ReadHeader reads the beginning of a record.
func ReadHeader(value []byte) (h Header, err error) {
	if len(value) < 4 || int(value[1]) >= len(opCodes) {
		return h, ErrUnreadable
	}
	h.Kind, h.Op = value[0], opCodes[value[1]]
	seconds, n := binary.Varint(value[2:])
	if n <= 0 {
		return h, ErrUnreadable
	}
	rest := value[2+n:]
	nanos, n := binary.Uvarint(rest)
	if n <= 0 || nanos >= uint64(time.Second) {
		return h, ErrUnreadable
	}
	h.Time, rest = time.Unix(seconds, int64(nanos)).UTC(), rest[n:]
	switch h.Kind {
	case Whole, storedSummary:
		h.Payload = rest
		return h, nil
	case storedRebased:
		var ok bool
		if h.Base, h.Payload, ok = cutText(rest); !ok {
			return h, ErrUnreadable
		}
		h.Kind = Whole
		return h, nil
	case Delta:
		var ok bool
		if h.Back, n = binary.Uvarint(rest); n <= 0 || len(rest) < n+4 {
			return h, ErrUnreadable
		}
		h.checksum, rest = binary.LittleEndian.Uint32(rest[n:]), rest[n+4:]
		if h.length, h.Payload, ok = cutUvarint(rest, maxText); !ok {
			return h, ErrUnreadable
		}
		return h, nil
	}
	return h, ErrUnreadable
}

// Apply makes the text of a delta, in the place of into.
func (h *Header) Apply(into, base []byte) ([]byte, error) {
	text, err := h.ApplyUnchecked(into, base)
	return text, cmp.Or(err, h.check(text))
}

// ApplyUnchecked is Apply without a look at the checksum: that of a later text covers it.
func (h *Header) ApplyUnchecked(into, base []byte) ([]byte, error) {
	return applyDelta(into, base, h.Payload, h.length)
}

// check compares a text with its checksum.
func (h *Header) check(text []byte) error {
	if crc32.Checksum(text, castagnoli) != h.checksum {
		return ErrMisfit
	}
	return nil
}

// Form is what is known of an object in a version.
type Form string

const (
	// FormObject: the object as the stream had it, redacted values included.
	FormObject Form = "object"
	// FormMetadata: the metadata of the object.
	FormMetadata Form = "metadata"
	// FormPatch: a merge patch to a version that is not known.
	FormPatch Form = "patch"
	// FormNone: the names of the object and the version.
	FormNone Form = "none"
)

// FormOf returns the form of data of a shape.
func FormOf(s diff.Shape, data []byte, dataType string) Form {
	switch {
	case len(data) == 0:
		return FormNone
	case dataType == event.MergePatchContentType:
		return FormPatch
	case s.Member(data, "metadata") == nil:
		return FormNone // a reference, as Knative has it
	case string(s.Member(data, "kind")) == `"PartialObjectMetadata"`:
		return FormMetadata
	}
	return FormObject
}

// ArchiveSource is the source of the events by which an archiver says what it could not read.
const ArchiveSource = "/archive"

// Unit is one resource of an informer of a cluster.
type Unit struct {
	Number uint32 `json:"number"`
	// SourceNumber is the same for all units of a Source.
	SourceNumber uint32 `json:"sourceNumber"`
	// Source is that of the events: /clusters/<cluster>.
	Source   string `json:"source"`
	Informer string `json:"informer"`
	Resource string `json:"resource"` // "deployments"; "" of an informer's events without one
	Group    string `json:"group,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// GroupResource is "deployments.apps", or "pods" for the core group.
func (u *Unit) GroupResource() string {
	if u.Group == "" {
		return u.Resource
	}
	return u.Resource + "." + u.Group
}

// Cluster returns the name of the cluster, as events' source has it.
func (u *Unit) Cluster() string { return strings.TrimPrefix(u.Source, "/clusters/") }

// String names the unit within its cluster, as "workloads/deployments.apps".
func (u *Unit) String() string { return u.Informer + "/" + u.GroupResource() }

// Key returns where a unit is stored, as JSON.
func (u *Unit) Key() []byte { return keys.InUnit(nil, keys.SpaceUnit, u.Number) }
