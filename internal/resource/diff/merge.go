package diff

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Merge returns the JSON Merge Patch (RFC 7386) that turns the old version into the new one. It is
// {} when they are equal. ok is false when there is none: null means removal in a merge patch, so
// it can't set a member to null. Nor does Merge find one for what differs below 128 levels.
func Merge(old, changed []byte) (patch []byte, ok bool) {
	m := merger{ok: true}
	before, after := jsontree.Parse(old), jsontree.Parse(changed)
	if before.IsObject() && after.IsObject() {
		m.object(before, after, 0)
	} else {
		m.value(after)
	}
	if !m.ok {
		return nil, false
	}
	return m.out, true
}

type merger struct {
	out []byte
	ok  bool
}

// object writes the patch between two objects.
func (m *merger) object(old, changed jsontree.Value, depth int) {
	m.ok = m.ok && depth <= maxDepth
	m.out = append(m.out, '{')
	begin := len(m.out)
	for pair := range jsontree.Pairs(old, changed) {
		start := len(m.out)
		switch {
		case !m.ok:
			return
		case pair.Old.Equal(pair.New):
			continue
		case pair.Old.IsObject() && pair.New.IsObject():
			m.name(pair.Name, begin)
			inner := len(m.out)
			m.object(pair.Old, pair.New, depth+1)
			if string(m.out[inner:]) == "{}" {
				m.out = m.out[:start] // only the order of members, or the space between them
			}
		case pair.New.Exists():
			m.name(pair.Name, begin)
			m.value(pair.New)
		default:
			m.name(pair.Name, begin)
			m.out = append(m.out, "null"...)
		}
	}
	m.out = append(m.out, '}')
}

// name writes a member's name. begin is the offset at which the members of its object begin.
func (m *merger) name(name string, begin int) {
	if len(m.out) > begin {
		m.out = append(m.out, ',')
	}
	if isPlain(name) {
		m.out = append(append(append(m.out, '"'), name...), '"')
	} else {
		m.out, _ = jsontext.AppendQuote(m.out, name) // names in valid JSON are valid UTF-8
	}
	m.out = append(m.out, ':')
}

// value writes a whole value. A null in it would mean removal, except in arrays, which are replaced
// as a whole.
func (m *merger) value(value jsontree.Value) {
	m.ok = m.ok && !hasNull(value)
	m.out = append(m.out, value.Raw()...)
}

func hasNull(value jsontree.Value) bool {
	if !value.IsObject() {
		return value.IsNull()
	}
	for w := value.Walk(); w.Next(); {
		if hasNull(w.Value()) {
			return true
		}
	}
	return false
}
