package diff

import (
	"bytes"
	"unsafe"

	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Shape says where the members of an object lie in its JSON; nil for what is no object. Most of
// them stay as they were from one version to the next. With the shape of the version before, those
// are compared as bytes, and only what differs is parsed.
type Shape []place

// place is where a member lies. The name has its quotes.
type place struct {
	name, nameEnd, value, end uint32
	// isSame: the value was found to be that of the version before.
	isSame bool
}

func (p place) nameIn(data []byte) []byte { return data[p.name:p.nameEnd] }

func (p place) in(data []byte) []byte { return data[p.value:p.end] }

// ShapeOf is the shape of data. older is the version before, nil for none: an object or array that
// begins as the one in its place ends as that one.
func ShapeOf(data, older []byte, old Shape) Shape {
	i := skipSpace(data, 0)
	if i == len(data) || data[i] != '{' {
		return nil
	}
	i++
	list := make(Shape, 0, max(len(old), 8))
	for {
		i = skipSpace(data, i)
		if i < len(data) && data[i] == '}' {
			return list
		}
		if len(list) > 0 {
			if i == len(data) || data[i] != ',' {
				return nil
			}
			i = skipSpace(data, i+1)
		}
		if i == len(data) || data[i] != '"' {
			return nil
		}
		p := place{name: uint32(i), nameEnd: uint32(jsontree.End(data, i))}
		i = skipSpace(data, int(p.nameEnd))
		if i == len(data) || data[i] != ':' {
			return nil
		}
		i = skipSpace(data, i+1)
		p.value = uint32(i)
		end := 0
		if n := len(list); n < len(old) {
			was := old[n].in(older)
			if len(was) > 0 && (was[0] == '{' || was[0] == '[') && bytes.HasPrefix(data[i:], was) {
				end, p.isSame = i+len(was), true
			}
		}
		if end == 0 {
			end = jsontree.End(data, i)
		}
		p.end, i = uint32(end), end
		list = append(list, p)
	}
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && data[i] <= ' ' {
		i++
	}
	return i
}

// Member is the value of a member, nil for none.
func (s Shape) Member(data []byte, name string) (value []byte) {
	for _, p := range s {
		if is := p.nameIn(data); len(is) == len(name)+2 && string(is[1:len(is)-1]) == name {
			value = p.in(data)
		}
	}
	return value
}

// Size is how many bytes it takes in memory.
func (s Shape) Size() int { return len(s) * int(unsafe.Sizeof(place{})) }

// hasNames reports whether two objects have the same members in the same order.
func (s Shape) hasNames(data []byte, other Shape, otherData []byte) bool {
	if len(s) == 0 || len(s) != len(other) {
		return false
	}
	for i, p := range s {
		name := p.nameIn(data)
		if !bytes.Equal(name, other[i].nameIn(otherData)) || bytes.IndexByte(name, '\\') >= 0 {
			return false
		}
	}
	return true
}

// ChangesByShape are the Changes between two versions whose shapes are known.
func ChangesByShape(older []byte, old Shape, newer []byte, now Shape) []Change {
	if !now.hasNames(newer, old, older) {
		return Changes(older, newer)
	}
	const most = 8 // of the changes of most versions
	w := changeWalker{list: make([]Change, 0, most)}
	w.limit = minPaths + pathsPerByte*(len(older)+len(newer))
	for i, p := range now {
		if p.isSame {
			continue
		}
		before, after := old[i].in(older), p.in(newer)
		if bytes.Equal(before, after) {
			continue
		}
		name := p.nameIn(newer)
		path := memberPath("", string(name[1:len(name)-1]))
		w.value(path, jsontree.Parse(before), jsontree.Parse(after), 1)
		if w.paths > w.limit {
			return Changes(older, newer)
		}
	}
	return w.list
}
