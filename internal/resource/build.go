package resource

import (
	"bytes"
	"slices"
	"unsafe"
)

// view is the text of bytes, without a copy. It lives as long as they do and must not outlast a change of them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// object copies the input with its edits and makes the Object. The parser itself stays on the stack: it is not kept by
// anything made here.
func (p *parser) object(at span, opts *ParseOptions) *Object {
	out := p.copy(at, opts.Type)
	obj, owners := newObject(p.owners.n)
	obj.Raw = slices.Clip(out)
	shift := len(out) - at.End - p.editedBytes(p.edits.n) // from an offset of the input before all edits to one of out
	obj.Meta = p.meta(out, shift)
	for i := range owners {
		owners[i] = p.owner(p.owners.at(i), out, shift)
	}
	obj.Owners = owners
	return obj
}

// newObject allocates an Object with its owners; nearly every object has one or none, which need no allocation of their own.
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

func (p *parser) needsAPIVersion(t Type) bool { return p.seen&fieldAPIVersion == 0 && t.Version != "" }

// editedBytes is by how much the first n edits make the object longer.
func (p *parser) editedBytes(n int) int {
	size := 0
	for i := range n {
		e := p.edits.at(i)
		size += len(e.with) - (e.End - e.Start)
	}
	return size
}

// copy makes the object's own bytes: with kind and apiVersion in the order that watch frames have them, and with the
// edits. Behind them is room for the manager's name, which was cut away with the managed fields.
func (p *parser) copy(at span, t Type) []byte {
	size := at.End - at.Start + p.prefixSize(t) + p.editedBytes(p.edits.n) + p.manager.End - p.manager.Start
	out := append(make([]byte, 0, size), '{')
	if p.needsKind(t) {
		out = append(append(append(out, `"kind":"`...), t.Kind...), `",`...)
	}
	if p.needsAPIVersion(t) {
		out = append(out, `"apiVersion":"`...)
		if t.Group != "" {
			out = append(append(out, t.Group...), '/')
		}
		out = append(append(out, t.Version...), `",`...)
	}
	from := at.Start + 1
	for i := range p.edits.n {
		e := p.edits.at(i)
		out = append(append(out, p.Bytes(span{Start: from, End: e.Start})...), e.with...)
		from = e.End
	}
	return append(out, p.Bytes(span{Start: from, End: at.End})...)
}

func (p *parser) meta(out []byte, shift int) Meta {
	m := Meta{
		Namespace:         p.string(p.namespace, out, shift),
		Name:              p.string(p.name, out, shift),
		UID:               p.string(p.uid, out, shift),
		Version:           Version(p.string(p.version, out, shift)),
		Generation:        p.generation,
		DeletionTimestamp: p.string(p.deletion, out, shift),
		Manager:           p.keep(p.manager, out),
		ChangedAt:         p.changedAt,
	}
	if m.ChangedAt.IsZero() {
		m.ChangedAt = p.time(p.created)
	}
	return m
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

// string is a string of the input as the object's own: a view of its copy in out, or decoded where it was escaped.
func (p *parser) string(t span, out []byte, shift int) string {
	if t.Start == t.End {
		return ""
	}
	if bytes.IndexByte(p.Bytes(t), '\\') >= 0 {
		return string(p.Text(t))
	}
	before := 0 // edits before the string
	for before < p.edits.n && p.edits.at(before).Start < t.Start {
		before++
	}
	shift += p.editedBytes(before)
	return view(out[t.Start+shift : t.End+shift])
}

// keep is a string that may have been cut from the copy: it is put behind the copy, where copy left room for it.
func (p *parser) keep(t span, out []byte) string {
	if t.Start == t.End {
		return ""
	}
	from := len(out)
	out = append(out, p.Text(t)...)
	return view(out[from:])
}
