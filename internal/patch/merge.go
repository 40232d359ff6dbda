package patch

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

// Merge gives the JSON Merge Patch (RFC 7386) that makes the new version of the old one, {} when they are equal. ok is false when
// there is none: in a merge patch null means removal, so it can't set a member to null.
func Merge(old, changed []byte) (patch []byte, ok bool) {
	m := merger{ok: true}
	if isObject(old) && isObject(changed) {
		m.object(old, changed)
	} else {
		m.value(changed)
	}
	return m.out, m.ok
}

type merger struct {
	out []byte
	ok  bool
}

// object writes the patch between two objects.
func (m *merger) object(old, changed []byte) {
	m.out = append(m.out, '{')
	begin := len(m.out)
	before := membersOf(old)
	for name, value := range resource.Members(changed) {
		was := before.take(name)
		switch {
		case bytes.Equal(was, value):
		case isObject(was) && isObject(value):
			start := len(m.out)
			m.name(name, begin)
			inner := len(m.out)
			m.object(was, value)
			if string(m.out[inner:]) == "{}" {
				m.out = m.out[:start] // only the order of members, or the space between them
			}
		default:
			m.name(name, begin)
			m.value(value)
		}
	}
	for i := range before.list {
		if !before.list[i].taken {
			m.name(before.list[i].name, begin)
			m.out = append(m.out, "null"...)
		}
	}
	m.out = append(m.out, '}')
}

// name writes a member's name; begin is where the members of its object begin.
func (m *merger) name(name string, begin int) {
	if len(m.out) > begin {
		m.out = append(m.out, ',')
	}
	m.out = append(appendQuoted(m.out, name), ':')
}

// value writes a value as a whole. A null in it would be taken for a removal, but for those in arrays, which replace each other as
// wholes.
func (m *merger) value(value []byte) {
	m.ok = m.ok && !hasNull(value)
	m.out = append(m.out, value...)
}

func hasNull(value []byte) bool {
	if !isObject(value) {
		return isNull(value)
	}
	for _, v := range resource.Members(value) {
		if hasNull(v) {
			return true
		}
	}
	return false
}

// appendQuoted writes a string of valid UTF-8, which is what names in valid JSON are.
func appendQuoted(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
