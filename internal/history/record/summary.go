package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// A value of the timeline is the code of the op alone, or
//
//	storedSummary | op | time | form | flags | back | text
//
// with the text of a stored version (record.go) but for id and uid. Its data are the fields that
// differ from the version before:
//
//	how many others differ | how many follow | { has | path | old | new }
//
// So a question about a namespace reads its range of the timeline and no versions. The op alone is
// of a version of which the one before was not at hand when it was stored, or came later: a
// question reads both.
const storedSummary = 4

// Flags of a summary.
const (
	// HasBefore: there is a version before.
	HasBefore = 1 << iota
	// IsHeartbeat: each change is one.
	IsHeartbeat
)

const (
	hasOld = 1 << iota
	hasNew
	isOmitted
)

// Bounds of the fields of a summary.
const (
	maxSummaryFields = 32
	maxSummaryPaths  = 1 << 10
	// maxSummaryValue is of the JSON of a value that is shown.
	maxSummaryValue = 20
)

var formCodes = []Form{"", FormObject, FormMetadata, FormPatch, FormNone}

// Summary is what differs from the version before, in short.
type Summary struct {
	Form    Form
	Flags   byte
	Changes []diff.Change
	More    int
}

// Summarize makes a summary of what differs. It keeps parts of the values.
func Summarize(form Form, flags byte, changes []diff.Change) Summary {
	s := Summary{Form: form, Flags: flags}
	if len(changes) > 0 {
		s.Flags |= IsHeartbeat
	}
	paths := 0
	s.Changes = make([]diff.Change, 0, min(len(changes), maxSummaryFields))
	for i := range changes {
		c := changes[i]
		if !c.IsHeartbeat() {
			s.Flags &^= IsHeartbeat
		}
		if paths += len(c.Path); len(s.Changes) == maxSummaryFields || paths > maxSummaryPaths {
			s.More++
			continue
		}
		if len(c.Old) > maxSummaryValue || len(c.New) > maxSummaryValue {
			c.Old, c.New, c.Omitted = nil, nil, true
		}
		s.Changes = append(s.Changes, c)
	}
	return s
}

func (s *Summary) appendFields(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.More))
	dst = binary.AppendUvarint(dst, uint64(len(s.Changes)))
	for i := range s.Changes {
		c := &s.Changes[i]
		has := byte(btoi(c.Old != nil)*hasOld | btoi(c.New != nil)*hasNew | btoi(c.Omitted)*isOmitted)
		dst = appendCounted(append(dst, has), c.Path)
		if c.Old != nil {
			dst = appendCounted(dst, c.Old)
		}
		if c.New != nil {
			dst = appendCounted(dst, c.New)
		}
	}
	return dst
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func appendCounted[T string | []byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// ReadFields reads what appendFields wrote.
func (s *Summary) ReadFields(data []byte) (ok bool) {
	const most = 1 << 30
	if s.More, data, ok = cutUvarint(data, most); !ok {
		return false
	}
	n, data, ok := cutUvarint(data, maxSummaryFields)
	if !ok {
		return false
	}
	s.Changes = make([]diff.Change, 0, n)
	for range n {
		if len(data) == 0 {
			return false
		}
		has := data[0]
		c := diff.Change{Omitted: has&isOmitted != 0}
		if c.Path, data, ok = cutText(data[1:]); !ok {
			return false
		}
		for _, v := range []struct {
			is    byte
			value *[]byte
		}{{hasOld, &c.Old}, {hasNew, &c.New}} {
			if has&v.is == 0 {
				continue
			}
			size, rest, ok := cutUvarint(data, len(data))
			if !ok || size > len(rest) {
				return false
			}
			*v.value, data = bytes.Clone(rest[:size:size]), rest[size:]
		}
		s.Changes = append(s.Changes, c)
	}
	return len(data) == 0
}

// Append appends the value of the timeline for a version. before is the one before it, nil for
// none. fields is memory that is used again.
func (s *Summary) Append(
	dst []byte, e *event.Event, d *DerivedAttributes, seq keys.Sequence, before *keys.Sequence, fields *[]byte,
) []byte {
	dst = appendHeader(dst, storedSummary, e.Op, TimeOf(e))
	dst = append(dst, byte(max(slices.Index(formCodes, s.Form), 0)), s.Flags)
	back, base := uint64(0), ""
	if before != nil && before.IsNumber() && seq.IsNumber() && before.Version < seq.Version {
		back, base = seq.Version-before.Version, before.ResourceVersion()
	}
	dst = binary.AppendUvarint(dst, back)
	short := *e
	short.ID, short.UID = "", ""
	*fields = s.appendFields((*fields)[:0])
	return AppendText(dst, d, &short, seq, *fields, base)
}

// ReadSummary reads a value of the timeline for a version. The text of h has the attributes, and as
// its data what readFields reads; base is the version before.
func ReadSummary(value []byte, seq keys.Sequence) (s Summary, h Header, base string, err error) {
	h, err = ReadHeader(value)
	if err != nil {
		return s, h, "", err
	}
	if h.Kind != storedSummary || len(h.Payload) < 3 || int(h.Payload[0]) >= len(formCodes) {
		return s, h, "", ErrUnreadable
	}
	s = Summary{Form: formCodes[h.Payload[0]], Flags: h.Payload[1]}
	back, n := binary.Uvarint(h.Payload[2:])
	if n <= 0 || back > seq.Version {
		return s, h, "", ErrUnreadable
	}
	if back > 0 {
		base = strconv.FormatUint(seq.Version-back, 10)
	}
	h.Payload = h.Payload[2+n:]
	return s, h, base, nil
}

// IndexValue is a value by which an index finds an object.
type IndexValue struct {
	Index byte
	Value string
}

// IndexValues appends the values of an object with some JSON.
func IndexValues(dst []IndexValue, u *Unit, object []byte) []IndexValue {
	var owners []struct {
		UID string `json:"uid"`
	}
	references := resource.Member(resource.Member(object, "metadata"), "ownerReferences")
	// What can't be decoded has no owner: whoever asks by an owner does not find it.
	_ = json.Unmarshal(references, &owners)
	for _, o := range owners {
		if o.UID != "" {
			dst = append(dst, IndexValue{keys.IndexOwner, o.UID})
		}
	}
	if u.Group != "" || u.Resource != "pods" {
		return dst
	}
	var node string
	_ = json.Unmarshal(resource.Member(resource.Member(object, "spec"), "nodeName"), &node) // the same
	if node != "" {
		dst = append(dst, IndexValue{keys.IndexNode, node})
	}
	return dst
}
