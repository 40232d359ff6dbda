package jsontree

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// Value is one value of a document. The zero Value is no value at all.
type Value struct {
	doc     *document
	at, end uint32 // its bytes in doc.raw
	node    uint32 // number of the first object or array that begins at or behind at
}

// document is JSON and the index of its objects and arrays, in the order in which they begin.
type document struct {
	raw   []byte
	nodes []node
}

type node struct {
	end  uint32 // offset behind the closing bracket
	next uint32 // number of the first node that begins behind it
}

// Parse indexes a document. It keeps raw, which must not change and must be shorter than 4 GiB.
func Parse(raw []byte) Value {
	if uint64(len(raw)) > math.MaxUint32 {
		panic("jsontree: a document of 4 GiB or more")
	}
	doc := &document{raw: raw}
	doc.index()
	at := skipSpace(raw, 0)
	if at == len(raw) {
		return Value{}
	}
	return doc.value(at, 0)
}

// index finds where objects and arrays end.
func (d *document) index() {
	raw := d.raw
	d.nodes = make([]node, 0, len(raw)/64+4)
	open := make([]uint32, 0, 16) // numbers of the nodes around i
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i+1)
			continue
		case '{', '[':
			open = append(open, uint32(len(d.nodes)))
			d.nodes = append(d.nodes, node{end: uint32(len(raw)), next: math.MaxUint32})
		case '}', ']':
			if last := len(open) - 1; last >= 0 {
				d.nodes[open[last]] = node{end: uint32(i + 1), next: uint32(len(d.nodes))}
				open = open[:last]
			}
		}
		i++
	}
}

// value is the value that begins at an offset, where the next object or array is the one of a
// number.
func (d *document) value(at int, number uint32) Value {
	v := Value{doc: d, at: uint32(at), node: number}
	switch d.raw[at] {
	case '{', '[':
		v.end = d.nodes[number].end
	case '"':
		v.end = uint32(stringEnd(d.raw, at+1))
	default:
		v.end = uint32(scalarEnd(d.raw, at))
	}
	return v
}

// Exists reports whether there is a value.
func (v Value) Exists() bool { return v.doc != nil }

// Raw is the value's JSON, nil when there is no value. It is a part of what Parse was given.
func (v Value) Raw() []byte {
	if v.doc == nil {
		return nil
	}
	return v.doc.raw[v.at:v.end:v.end]
}

// Start and End are the value's place in what Parse was given.
func (v Value) Start() int { return int(v.at) }

// End is the offset behind the value.
func (v Value) End() int { return int(v.end) }

// first is the value's first byte, which shows its kind; 0 when there is no value.
func (v Value) first() byte {
	if v.doc == nil {
		return 0
	}
	return v.doc.raw[v.at]
}

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return v.first() == '{' }

// IsArray reports whether the value is an array.
func (v Value) IsArray() bool { return v.first() == '[' }

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.first() == 'n' }

// Equal reports whether both values have the same bytes.
func (v Value) Equal(other Value) bool { return bytes.Equal(v.Raw(), other.Raw()) }

// skipSpace is the offset of the first byte from i on that is no space.
func skipSpace(raw []byte, i int) int {
	for i < len(raw) && raw[i] <= ' ' {
		i++
	}
	return i
}

// stringEnd is the offset behind the string whose text begins at an offset.
func stringEnd(raw []byte, text int) int {
	// Most names are so short that a call of IndexByte would take longer.
	for i := text; i < min(text+12, len(raw)) && raw[i] != '\\'; i++ {
		if raw[i] == '"' {
			return i + 1
		}
	}
	for i := text; ; {
		n := bytes.IndexByte(raw[i:], '"')
		if n < 0 {
			return len(raw)
		}
		i += n
		slash := i
		for slash > text && raw[slash-1] == '\\' {
			slash--
		}
		if i++; (i-slash)%2 == 1 { // an even number of backslashes: the quote is not escaped
			return i
		}
	}
}

// End is the offset behind the value that begins at an offset. Of the rest nothing is looked at.
func End(raw []byte, at int) int {
	if at >= len(raw) {
		return len(raw)
	}
	switch raw[at] {
	case '"':
		return stringEnd(raw, at+1)
	case '{', '[':
	default:
		return scalarEnd(raw, at)
	}
	open := 0
	for i := at; i < len(raw); {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i+1)
			continue
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(raw)
}

// scalarEnd is the offset behind the number or literal at an offset.
func scalarEnd(raw []byte, i int) int {
	for i < len(raw) && raw[i] > ' ' {
		switch raw[i] {
		case ',', '}', ']', '{', '[', '"': // the last three only where the syntax is wrong
			return i
		}
		i++
	}
	return i
}

// unquote is the text of a string. It shares memory with it where nothing is escaped.
func unquote(quoted []byte) string {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return unsafe.String(unsafe.SliceData(text), len(text))
	}
	unescaped, _ := jsontext.AppendUnquote(nil, quoted) // it is valid
	return string(unescaped)
}
