package resource

import (
	"bytes"
	"slices"
	"strings"
	"unsafe"
)

// view returns the text of bytes, without a copy. It lives as long as they do and must not outlast
// a change of them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// object copies the input with its edits and makes the Object. The parser itself stays on the
// stack: it is not kept by anything made here.
func (p *parser) object(at span, opts *ParseOptions) *Object {
	p.dropOldFields()
	p.sumEdits()
	out, entries := p.copy(at, opts.Type)
	obj, owners := newObject(p.owners.n)
	obj.Raw = out
	// from an offset of the input before all edits to one of out
	shift := len(out) - at.End - p.editedBytes(p.edits.n)
	obj.Meta = p.meta(out, shift)
	obj.Writes = Writes(view(entries))
	for i := range owners {
		owners[i] = p.owner(p.owners.at(i), out, shift)
	}
	obj.Owners = owners
	return obj
}

// newObject allocates an Object with its owners; nearly every object has one or none, which need no
// allocation of their own.
func newObject(owners int) (*Object, []Owner) {
	switch owners {
	case 0:
		return new(Object), nil
	case 1:
		both := new(struct {
			Object
			owner [1]Owner
		})
		return &both.Object, both.owner[:]
	default:
		return new(Object), make([]Owner, owners)
	}
}

func (p *parser) prefixSize(t Type) int {
	size := 0
	if p.needsKind(t) {
		size += len(`"kind":"",`) + len(t.Kind)
	}
	if p.needsAPIVersion(t) {
		size += len(`"apiVersion":"/",`) + len(t.Group) + len(t.Version)
	}
	return size
}

func (p *parser) needsKind(t Type) bool { return p.seen&fieldKind == 0 && t.Kind != "" }

func (p *parser) needsAPIVersion(t Type) bool {
	return p.seen&fieldAPIVersion == 0 && t.Version != ""
}

// sumEdits prepares editedBytes. Each string of the object asks for that, and an object may have
// ten thousand owners behind ten thousand edits: no string can look at all edits before it.
func (p *parser) sumEdits() {
	longer := 0
	for i := range p.edits.n {
		e := p.edits.at(i)
		longer += len(e.with) - (e.End - e.Start)
		e.longer = longer
	}
}

// editedBytes is by how much the first n edits make the object longer.
func (p *parser) editedBytes(n int) int {
	if n == 0 {
		return 0
	}
	return p.edits.at(n - 1).longer
}

// editsBefore counts the edits that begin before an offset of the input.
func (p *parser) editsBefore(offset int) int {
	low, high := 0, p.edits.n
	for low < high {
		if middle := (low + high) / 2; p.edits.at(middle).Start < offset {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// copy makes the object's own bytes: with kind and apiVersion in the order that watch frames have
// them, and with the edits; and of the managedFields, which were cut away, the newest entries,
// behind them in the same memory.
func (p *parser) copy(at span, t Type) (raw, entries []byte) {
	var out strings.Builder // whose memory need not be zero before it is written to
	out.Grow(at.End - at.Start + p.prefixSize(t) + p.editedBytes(p.edits.n) + p.writesSize())
	out.WriteByte('{')
	p.writePrefix(&out, t)
	from := at.Start + 1
	for i := range p.edits.n {
		e := p.edits.at(i)
		out.Write(p.Bytes(span{Start: from, End: e.Start}))
		out.Write(e.with)
		from = e.End
	}
	out.Write(p.Bytes(span{Start: from, End: at.End}))
	size := out.Len()
	p.appendWrites(&out)
	all := unsafe.Slice(unsafe.StringData(out.String()), out.Len())
	return all[:size:size], all[size:]
}

func (p *parser) writePrefix(out *strings.Builder, t Type) {
	if p.needsKind(t) {
		out.WriteString(`"kind":"`)
		out.WriteString(t.Kind)
		out.WriteString(`",`)
	}
	if p.needsAPIVersion(t) {
		out.WriteString(`"apiVersion":"`)
		if t.Group != "" {
			out.WriteString(t.Group)
			out.WriteByte('/')
		}
		out.WriteString(t.Version)
		out.WriteString(`",`)
	}
}

func (p *parser) meta(out []byte, shift int) Meta {
	return Meta{
		Namespace:         p.string(p.namespace, out, shift),
		Name:              p.string(p.name, out, shift),
		UID:               p.string(p.uid, out, shift),
		Version:           Version(p.string(p.version, out, shift)),
		Generation:        p.generation,
		DeletionTimestamp: p.string(p.deletion, out, shift),
		CreationTimestamp: p.string(p.created, out, shift),
		NodeName:          p.string(p.node, out, shift),
	}
}

func (p *parser) owner(o *ownerSpans, out []byte, shift int) Owner {
	return Owner{
		APIVersion: p.string(o.apiVersion, out, shift),
		Kind:       p.string(o.kind, out, shift),
		Name:       p.string(o.name, out, shift),
		UID:        p.string(o.uid, out, shift),
		Controller: o.controller,
	}
}

// string returns a string of the input as the object's own: a view of its copy in out, or decoded
// where it was escaped.
func (p *parser) string(t span, out []byte, shift int) string {
	if t.Start == t.End {
		return ""
	}
	if bytes.IndexByte(p.Bytes(t), '\\') >= 0 {
		return string(p.Text(t))
	}
	shift += p.editedBytes(p.editsBefore(t.Start))
	return view(out[t.Start+shift : t.End+shift])
}

// smallSlice is a list whose first elements need no allocation: it stays on the stack together with
// what holds it, which a slice of a local array does not.
type smallSlice[T any] struct {
	n     int
	first [2]T
	more  []T
}

func (l *smallSlice[T]) add(v T) {
	if l.n < len(l.first) {
		l.first[l.n] = v
	} else {
		if len(l.more) == cap(l.more) { // append grows a long list by a quarter, and copies it often
			l.more = slices.Grow(l.more, max(len(l.more), 4))
		}
		l.more = append(l.more, v)
	}
	l.n++
}

func (l *smallSlice[T]) at(i int) *T {
	if i < len(l.first) {
		return &l.first[i]
	}
	return &l.more[i-len(l.first)]
}
