package history

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/diff"
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
	hasBefore = 1 << iota
	isHeartbeat
)

// What a change has.
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

// summary is what differs from the version before, in short.
type summary struct {
	form    Form
	flags   byte
	changes []diff.Change
	more    int
}

// summarize makes a summary of what differs. It keeps parts of the values.
func summarize(form Form, flags byte, changes []diff.Change) summary {
	s := summary{form: form, flags: flags}
	if len(changes) > 0 {
		s.flags |= isHeartbeat
	}
	paths := 0
	s.changes = make([]diff.Change, 0, min(len(changes), maxSummaryFields))
	for i := range changes {
		c := changes[i]
		if !c.IsHeartbeat() {
			s.flags &^= isHeartbeat
		}
		if paths += len(c.Path); len(s.changes) == maxSummaryFields || paths > maxSummaryPaths {
			s.more++
			continue
		}
		if len(c.Old) > maxSummaryValue || len(c.New) > maxSummaryValue {
			c.Old, c.New, c.Omitted = nil, nil, true
		}
		s.changes = append(s.changes, c)
	}
	return s
}

func (s *summary) appendFields(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.more))
	dst = binary.AppendUvarint(dst, uint64(len(s.changes)))
	for i := range s.changes {
		c := &s.changes[i]
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

// readFields reads what appendFields wrote.
func (s *summary) readFields(data []byte) (ok bool) {
	const most = 1 << 30
	if s.more, data, ok = cutUvarint(data, most); !ok {
		return false
	}
	n, data, ok := cutUvarint(data, maxSummaryFields)
	if !ok {
		return false
	}
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
			var value string
			if value, data, ok = cutText(data); !ok {
				return false
			}
			*v.value = []byte(value)
		}
		s.changes = append(s.changes, c)
	}
	return len(data) == 0
}

// append appends the value of the timeline for a version. before is the one before it, nil for
// none. fields is memory that is used again.
func (s *summary) append(
	dst []byte, e *event.Event, d *derived, seq sequence, before *sequence, fields *[]byte,
) []byte {
	dst = appendHeader(dst, storedSummary, e.Op, timeOf(e))
	dst = append(dst, byte(max(slices.Index(formCodes, s.form), 0)), s.flags)
	back, base := uint64(0), ""
	if before != nil && before.isNumber() && seq.isNumber() && before.version < seq.version {
		back, base = seq.version-before.version, before.resourceVersion()
	}
	dst = binary.AppendUvarint(dst, back)
	short := *e
	short.ID, short.UID = "", ""
	*fields = s.appendFields((*fields)[:0])
	return appendText(dst, d, &short, seq, *fields, base)
}

// readSummary reads a value of the timeline for a version. The text of h has the attributes, and as
// its data what readFields reads; base is the version before.
func readSummary(value []byte, seq sequence) (s summary, h header, base string, err error) {
	h, err = readHeader(value)
	if err != nil {
		return s, h, "", err
	}
	if h.kind != storedSummary || len(h.payload) < 3 || int(h.payload[0]) >= len(formCodes) {
		return s, h, "", errRecord
	}
	s = summary{form: formCodes[h.payload[0]], flags: h.payload[1]}
	back, n := binary.Uvarint(h.payload[2:])
	if n <= 0 || back > seq.version {
		return s, h, "", errRecord
	}
	if back > 0 {
		base = strconv.FormatUint(seq.version-back, 10)
	}
	h.payload = h.payload[2+n:]
	return s, h, base, nil
}
