package jsontree

import "bytes"

// Walker goes over the members of an object or the items of an array, in their order:
//
//	for w := v.Walk(); w.Next(); { … w.Name() … w.Value() … }
//
// Of any other value there are none.
type Walker struct {
	doc    *document
	i      int    // offset behind the last element
	number uint32 // of the next object or array behind i
	end    byte   // the closing bracket; 0 when there is nothing to walk over
	last   int    // offset behind the object or array
	name   []byte // of the current member, with its quotes
	nameAt int    // offset of name
	gap    int    // offset of what separates the current element from the one before it
	value  Value
}

// Walk begins before the first member or item.
func (v Value) Walk() Walker {
	w := Walker{doc: v.doc, i: int(v.at) + 1, number: v.node + 1, last: int(v.end)}
	if v.IsObject() || v.IsArray() {
		w.end = v.first() + 2 // '}' and ']' are two behind '{' and '['
	}
	return w
}

// Next goes to the next member or item, and reports whether there is one.
func (w *Walker) Next() bool {
	if w.end == 0 {
		return false
	}
	raw := w.doc.raw
	w.gap = w.i
	i := skipSpace(raw, w.i)
	if i < len(raw) && raw[i] == ',' {
		i = skipSpace(raw, i+1)
	}
	if w.end == '}' && i < len(raw) && raw[i] == '"' {
		name := i
		i = stringEnd(raw, i+1)
		w.name, w.nameAt = raw[name:i], name
		if i = skipSpace(raw, i); i < len(raw) && raw[i] == ':' {
			i = skipSpace(raw, i+1)
		}
	} else if w.end == '}' {
		i = len(raw)
	}
	if i >= len(raw) || raw[i] == ',' || raw[i] == '}' || raw[i] == ']' {
		w.end = 0
		return false
	}
	w.value = w.doc.value(i, w.number)
	if c := raw[i]; c == '{' || c == '[' {
		w.number = w.doc.nodes[w.number].next
	}
	w.i = int(w.value.end)
	return true
}

// Value is the value of the current member, or the current item.
func (w *Walker) Value() Value { return w.value }

// Name is the current member's name, "" for an item. It may share memory with the document.
func (w *Walker) Name() string {
	if w.name == nil {
		return ""
	}
	return unquote(w.name)
}

// Gap is the offset behind the element before the current one, or behind the opening bracket.
func (w *Walker) Gap() int { return w.gap }

// Following is the offset behind the comma that follows the current element, or behind the element
// when it is the last one.
func (w *Walker) Following() int {
	if i := skipSpace(w.doc.raw, w.i); i < len(w.doc.raw) && w.doc.raw[i] == ',' {
		return i + 1
	}
	return w.i
}

// sameName reports whether both walkers are at members with the same name.
func (w *Walker) sameName(other *Walker) bool { return sameName(w.name, other.name) }

// anyHas reports whether the current member or one behind it has the other walker's name. Mostly
// the name is new, and where it stands nowhere as it is, and nothing is escaped, that is known
// without a look at each member: 0.05 ms instead of 1 ms for 30,000 members.
func (w *Walker) anyHas(other *Walker) bool {
	rest := w.doc.raw[w.nameAt:w.last]
	isPlain := bytes.IndexByte(other.name, '\\') < 0 && bytes.IndexByte(rest, '\\') < 0
	if isPlain && !bytes.Contains(rest, other.name) {
		return false
	}
	for rest, more := *w, true; more; more = rest.Next() {
		if rest.sameName(other) {
			return true
		}
	}
	return false
}
