package history

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
	"github.com/kubebridge/bridge/internal/resource"
)

// A stored version is
//
//	kind | op | time | text                                                 kind storedWhole
//	kind | op | time | base | checksum of the text | its length | delta     kind storedDelta
//	kind | op | time | length | version of the base | text                  kind storedRebased
//
// time is seconds (varint) and nanoseconds (uvarint). base is by how much the version of the base
// is lower than this one's: the base is always the version right before. The text is
//
//	flags | { code | length | value } | 0 | data
//
// with the attributes that follow neither from the key nor from the unit nor from a flag.
const (
	storedWhole = 1
	storedDelta = 2
	// storedRebased was a difference to a version that retention has removed.
	storedRebased = 3
)

// timeOf is where an event stands in the timeline.
func timeOf(e *event.Event) time.Time {
	if e.Time.IsZero() {
		return e.Observed
	}
	return e.Time
}

// Flags of a text. The first ones say that an attribute has the value that derived gives.
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
	"deadletterattempts", "truncated",
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

func opCode(op event.Op) byte { return byte(max(slices.Index(opCodes, op), 0)) }

// derived are attributes as they follow from an event's others.
type derived struct{ id, typ, subject, partitionKey, sequence string }

func derive(u *Unit, e *event.Event, seq sequence) (d derived) {
	t := resource.Type{Group: u.Group, Resource: u.Resource, Namespaced: e.Namespace != ""}
	t.Version = e.APIVersion[strings.LastIndexByte(e.APIVersion, '/')+1:]
	d.subject = t.ObjectPath(resource.MakeKey(e.Namespace, e.Name))
	// The others are parts of one text, as this is done for each version.
	b := append(append(make([]byte, 0, 256), e.UID...), '/')
	if e.Op == event.Deleted {
		b = append(b, "deleted"...)
	} else {
		b = seq.appendResourceVersion(b)
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
	text := string(seq.appendText(b))
	d.id, d.typ, d.partitionKey, d.sequence = text[:id], text[id:typ], text[typ:partitionKey],
		text[partitionKey:]
	return d
}

// readDocument reads the event of a mark.
func readDocument(document []byte) (event.Event, error) {
	e, err := event.ParseStructured(bytes.Clone(document))
	if err != nil {
		err = fmt.Errorf("%w: %w", errRecord, err)
	}
	return e, err
}

// appendText appends the text of an event. data takes the place of the event's own. base is the
// version of the base, "" for none.
func appendText(
	dst []byte, d *derived, e *event.Event, seq sequence, data []byte, base string,
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
	if e.ResourceVersion != seq.resourceVersion() {
		put("resourceversion", e.ResourceVersion)
	}
	for _, a := range e.Extensions {
		put(a.Name, a.Value)
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

var errRecord = errors.New("a stored version can't be read")

// readText reads a text into an event. The event has the fields that follow from unit and key. Data
// is a part of text.
func readText(e *event.Event, u *Unit, seq sequence, text []byte, base string) error {
	flags, n := binary.Uvarint(text)
	if n <= 0 {
		return errRecord
	}
	text = text[n:]
	e.ResourceVersion = seq.resourceVersion()
	for {
		code, rest, ok := cutUvarint(text, codeFirst+len(attributeNames)-1)
		if !ok {
			return errRecord
		}
		text = rest
		if code == codeEnd {
			break
		}
		var name, value string
		if code == codeNamed {
			if name, text, ok = cutText(text); !ok {
				return errRecord
			}
		} else {
			name = attributeNames[code-codeFirst]
		}
		if value, text, ok = cutText(text); !ok {
			return errRecord
		}
		if err := e.Set(name, value); err != nil {
			return errors.Join(errRecord, err)
		}
	}
	if flags&previousIsBase != 0 {
		e.Previous = base
	}
	e.Initial, e.Inferred = flags&isInitial != 0, flags&isInferred != 0
	d := derive(u, e, seq)
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
	if flags&hasNoTime != 0 {
		e.Time = time.Time{}
	}
	if len(text) > 0 {
		e.Data = text
	}
	return nil
}

// cutText reads a text behind its length.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	n, rest, ok := cutUvarint(b, len(b))
	if !ok || n > len(rest) {
		return "", nil, false
	}
	return string(rest[:n]), rest[n:], true
}

// header is what is known of a stored version without its text.
type header struct {
	kind byte
	op   event.Op
	time time.Time
	base string // of storedRebased, the version of what was its base
	// Of a delta.
	back     uint64 // by how much the base's version is lower
	checksum uint32
	length   int
	payload  []byte // text or delta
}

// maxText bounds what is allocated for a text whose length a record tells. No broker takes more.
const maxText = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHeader(dst []byte, kind byte, op event.Op, at time.Time) []byte {
	dst = append(dst, kind, opCode(op))
	if at.IsZero() {
		return append(dst, 0, 0)
	}
	return binary.AppendUvarint(binary.AppendVarint(dst, at.Unix()), uint64(at.Nanosecond()))
}

func appendWhole(dst []byte, op event.Op, at time.Time, text []byte) []byte {
	return append(appendHeader(dst, storedWhole, op, at), text...)
}

// appendRebased appends a version stored whole whose base was another: what follows is a difference
// to the text, which must not change. So the text stays, and the version of the base comes before
// it.
func appendRebased(dst []byte, h *header, base string, text []byte) []byte {
	dst = appendHeader(dst, storedRebased, h.op, h.time)
	return append(appendCounted(dst, base), text...)
}

// appendDelta appends a version stored as a difference. back is by how much the version of the base
// is lower.
func (d *deltaEncoder) appendRecord(
	dst []byte, op event.Op, at time.Time, back uint64, base, text []byte,
) []byte {
	dst = appendHeader(dst, storedDelta, op, at)
	dst = binary.AppendUvarint(dst, back)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(text, castagnoli))
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return d.append(dst, base, text)
}

func readHeader(value []byte) (h header, err error) {
	if len(value) < 4 || int(value[1]) >= len(opCodes) {
		return h, errRecord
	}
	h.kind, h.op = value[0], opCodes[value[1]]
	seconds, n := binary.Varint(value[2:])
	if n <= 0 {
		return h, errRecord
	}
	rest := value[2+n:]
	nanos, n := binary.Uvarint(rest)
	if n <= 0 || nanos >= uint64(time.Second) {
		return h, errRecord
	}
	h.time, rest = time.Unix(seconds, int64(nanos)).UTC(), rest[n:]
	switch h.kind {
	case storedWhole, storedSummary:
		h.payload = rest
		return h, nil
	case storedRebased:
		var ok bool
		if h.base, h.payload, ok = cutText(rest); !ok {
			return h, errRecord
		}
		h.kind = storedWhole
		return h, nil
	case storedDelta:
		var ok bool
		if h.back, n = binary.Uvarint(rest); n <= 0 || len(rest) < n+4 {
			return h, errRecord
		}
		h.checksum, rest = binary.LittleEndian.Uint32(rest[n:]), rest[n+4:]
		if h.length, h.payload, ok = cutUvarint(rest, maxText); !ok {
			return h, errRecord
		}
		return h, nil
	}
	return h, errRecord
}

// apply makes the text of a delta, in the place of into.
func (h *header) apply(into, base []byte) ([]byte, error) {
	text, err := applyDelta(into, base, h.payload, h.length)
	return text, cmp.Or(err, h.check(text))
}

// check compares a text with its checksum.
func (h *header) check(text []byte) error {
	if crc32.Checksum(text, castagnoli) != h.checksum {
		return errDelta
	}
	return nil
}
