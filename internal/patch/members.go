package patch

import (
	"bytes"

	"github.com/kubebridge/bridge/internal/resource"
)

// member is one member of an object.
type member struct {
	name  string
	value []byte
	taken bool // the other version has it too
}

// members are those of an object. Looking them up costs nearly nothing when it is done in their order, which two versions of
// an object mostly share.
type members struct {
	list []member
	next int
}

func membersOf(object []byte) *members {
	m := &members{}
	for name, value := range resource.Members(object) {
		m.list = append(m.list, member{name: name, value: value})
	}
	return m
}

// take finds a member by name and marks it, nil when there is none.
func (m *members) take(name string) []byte {
	for n := range m.list {
		at := (m.next + n) % len(m.list)
		if m.list[at].name == name {
			m.list[at].taken = true
			m.next = at + 1
			return m.list[at].value
		}
	}
	return nil
}

// kinds of values, by their first byte.
func isObject(value []byte) bool { return begins(value, '{') }
func isArray(value []byte) bool  { return begins(value, '[') }
func isNull(value []byte) bool   { return begins(value, 'n') }

func begins(value []byte, c byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && value[0] == c
}
