package diff

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// maxPath is the longest JSON Pointer in a patch, in bytes. A difference below a longer path
// replaces the parent.
const maxPath = 4 << 10

// Diff returns the JSON Patch (RFC 6902) that turns the old version into the new one, [] when they
// are equal. It uses add, remove and replace. In lists it finds the common beginning and the common
// end, and compares the rest item by item. A value is replaced where the operations on its parts
// would be longer, so no patch is longer than the one that replaces the document.
func Diff(old, changed []byte) []byte {
	d := differ{out: []byte{'['}}
	before, after := jsontree.Parse(old), jsontree.Parse(changed)
	d.limit = len(d.out) + d.cost("replace", after.Raw())
	if !before.Equal(after) {
		d.value(before, after)
	}
	return append(d.out, ']')
}

// differ writes a patch. Every operation repeats the path, so the operations may be far longer than
// the value that they change. Each is compared with the limit before it is written.
type differ struct {
	out   []byte
	path  []byte // JSON Pointer to the current value, escaped for a JSON string
	depth int    // names and indices in path
	limit int    // of len(out): replacing the value is shorter than anything longer
	over  bool   // the limit is reached: unwind to a value that can be replaced
}

// value writes the operations that turn one value into another one.
func (d *differ) value(old, changed jsontree.Value) {
	start, outer := len(d.out), d.limit
	d.limit = min(outer, start+d.cost("replace", changed.Raw()))
	switch {
	case d.depth == maxDepth:
		d.over = true
	case old.IsObject() && changed.IsObject():
		d.object(old, changed)
	case old.IsArray() && changed.IsArray():
		d.array(old, changed)
	default:
		d.over = true
	}
	d.limit = outer
	if d.over {
		d.out, d.over = d.out[:start], false
		d.operation("replace", changed.Raw())
	}
}

func (d *differ) object(old, changed jsontree.Value) {
	for pair := range jsontree.Pairs(old, changed) {
		if d.element(pair.Name, pair.Old, pair.New); d.over {
			return
		}
	}
}

// array writes the operations between two arrays: none for the items that both begin or end with,
// and for those between them item by item.
func (d *differ) array(old, changed jsontree.Value) {
	begin := commonBeginning(old, changed)
	before, after := rest(old, begin), rest(changed, begin)
	end := commonEnd(before, after)
	oldItems, newItems := before.count-end, after.count-end
	for i := range max(oldItems, newItems) {
		var was, is jsontree.Value
		index := begin + i
		if i < oldItems {
			was = before.next()
		}
		if i < newItems {
			is = after.next()
		} else {
			index = begin + newItems // each removal moves the next item here
		}
		if d.element(strconv.Itoa(index), was, is); d.over {
			return
		}
	}
}

// commonBeginning returns how many items both arrays begin with.
func commonBeginning(old, changed jsontree.Value) int {
	n := 0
	for a, b := old.Walk(), changed.Walk(); a.Next() && b.Next() && a.Value().Equal(b.Value()); {
		n++
	}
	return n
}

// items are those of an array from one of them on.
type items struct {
	walker jsontree.Walker
	count  int
}

// rest returns the items of an array without the first ones.
func rest(array jsontree.Value, without int) items {
	w := array.Walk()
	for range without {
		w.Next()
	}
	r := items{walker: w}
	for w.Next() {
		r.count++
	}
	return r
}

func (s *items) next() jsontree.Value {
	s.walker.Next()
	return s.walker.Value()
}

// commonEnd returns how many items both end with.
func commonEnd(old, changed items) int {
	both := min(old.count, changed.count)
	for range old.count - both {
		old.next()
	}
	for range changed.count - both {
		changed.next()
	}
	n := 0
	for range both {
		if n++; !old.next().Equal(changed.next()) {
			n = 0
		}
	}
	return n
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// appendName appends a name to a JSON Pointer in a JSON string.
func appendName(path []byte, name string) []byte {
	if isPlain(name) {
		return append(path, name...)
	}
	quoted, _ := jsontext.AppendQuote(nil, pointerEscapes.Replace(name))
	return append(path, quoted[1:len(quoted)-1]...)
}

// isPlain reports whether nothing in a name has to be escaped in a JSON Pointer or a JSON string.
// That is so of most names, and found out in a fraction of the time that escaping takes.
func isPlain(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '~', c == '/':
			return false
		}
	}
	return true
}

// element writes the operations for a member or an item. A value that does not exist is missing.
func (d *differ) element(name string, old, changed jsontree.Value) {
	if old.Exists() && changed.Exists() && old.Equal(changed) {
		return
	}
	here := len(d.path)
	if here+len(name) >= maxPath {
		d.over = true
		return
	}
	d.path = appendName(append(d.path, '/'), name)
	d.depth++
	switch {
	case !old.Exists():
		d.operation("add", changed.Raw())
	case !changed.Exists():
		d.operation("remove", nil)
	default:
		d.value(old, changed)
	}
	d.depth--
	d.path = d.path[:here]
}

// operation writes one operation at the path unless it exceeds the limit. value is nil for remove.
func (d *differ) operation(op string, value []byte) {
	n := d.cost(op, value)
	if len(d.out)+n > d.limit {
		d.over = true
		return
	}
	if len(d.out)+n > cap(d.out) { // append grows by a quarter, and copies often
		d.out = slices.Grow(d.out, len(d.out)+n)
	}
	if len(d.out) > 1 {
		d.out = append(d.out, ',')
	}
	d.out = append(append(append(d.out, `{"op":"`...), op...), `","path":"`...)
	d.out = append(append(d.out, d.path...), '"')
	if value != nil {
		d.out = append(append(d.out, `,"value":`...), value...)
	}
	d.out = append(d.out, '}')
}

// cost returns the length of an operation at the path, including the comma before it.
func (d *differ) cost(op string, value []byte) int {
	n := len(`{"op":"","path":""}`) + len(op) + len(d.path) + len(value)
	if value != nil {
		n += len(`,"value":`)
	}
	if len(d.out) > 1 {
		n++
	}
	return n
}

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

// Apply returns what a JSON Merge Patch (RFC 7386) makes of a document. Members keep their order,
// new ones come behind. Below 128 levels a value of the patch takes the place of the old one.
func Apply(document, merge []byte) []byte {
	a := applier{}
	a.value(jsontree.Parse(document), jsontree.Parse(merge), 0)
	return a.out
}

type applier struct{ out []byte }

// value writes what a patch makes of a value, which may be missing.
func (a *applier) value(old, change jsontree.Value, depth int) {
	if !change.IsObject() || depth > maxDepth {
		a.out = append(a.out, change.Raw()...)
		return
	}
	if !old.IsObject() {
		old = jsontree.Value{}
	}
	a.out = append(a.out, '{')
	begin := len(a.out)
	changes := change.Members()
	applied := make([]bool, len(changes.List))
	for w := old.Walk(); old.Exists() && w.Next(); {
		i := changes.Find(w.Name())
		switch {
		case i < 0:
			a.name(w.Name(), begin)
			a.out = append(a.out, w.Value().Raw()...)
			continue
		case !changes.List[i].Value.IsNull():
			a.name(w.Name(), begin)
			a.value(w.Value(), changes.List[i].Value, depth+1)
		}
		applied[i] = true
	}
	for i, m := range changes.List {
		if !applied[i] && !m.Value.IsNull() {
			a.name(m.Name, begin)
			a.value(jsontree.Value{}, m.Value, depth+1)
		}
	}
	a.out = append(a.out, '}')
}

// name writes a member's name. begin is the offset at which the members of its object begin.
func (a *applier) name(name string, begin int) {
	if len(a.out) > begin {
		a.out = append(a.out, ',')
	}
	a.out, _ = jsontext.AppendQuote(a.out, name) // names in valid JSON are valid UTF-8
	a.out = append(a.out, ':')
}

// Equal reports whether two versions differ in nothing but what the paths lead to. A member that
// only one version has, and that holds nothing else, is no difference either. The order of members
// does not count. Below 128 levels only equal bytes are equal.
func Equal(old, changed []byte, except *resource.Paths) bool {
	return bytes.Equal(old, changed) ||
		EqualValues(jsontree.Parse(old), jsontree.Parse(changed), except)
}

// EqualValues is Equal for versions that are indexed already.
func EqualValues(old, changed jsontree.Value, except *resource.Paths) bool {
	return equal(old, changed, except, 0)
}

// equal compares two values, one of which may be missing.
func equal(old, changed jsontree.Value, except *resource.Paths, depth int) bool {
	switch {
	case except.End() || old.Equal(changed):
		return true
	case depth == maxDepth:
		return false
	case !old.Exists(), !changed.Exists():
		return onlyExcepted(old, changed, except, depth)
	case old.IsObject() && changed.IsObject():
		for pair := range jsontree.Pairs(old, changed) {
			if !equal(pair.Old, pair.New, except.Member(pair.Name), depth+1) {
				return false
			}
		}
		return true
	case old.IsArray() && changed.IsArray() && !except.Empty():
		return equalArrays(old, changed, except.Item(), depth+1)
	}
	return false
}

func equalArrays(old, changed jsontree.Value, except *resource.Paths, depth int) bool {
	a, b := old.Walk(), changed.Walk()
	for {
		hasOld, hasNew := a.Next(), b.Next()
		if !hasOld && !hasNew {
			return true
		}
		var was, is jsontree.Value
		if hasOld {
			was = a.Value()
		}
		if hasNew {
			is = b.Value()
		}
		if !equal(was, is, except, depth) {
			return false
		}
	}
}

// onlyExcepted reports whether the one value that exists is an object or array that holds
// something, and nothing but what the paths lead to.
func onlyExcepted(old, changed jsontree.Value, except *resource.Paths, depth int) bool {
	if except.Empty() {
		return false
	}
	value := old
	if !old.Exists() {
		value = changed
	}
	holds := false
	for w := value.Walk(); w.Next(); {
		inner := except.Item()
		if value.IsObject() {
			inner = except.Member(w.Name())
		}
		if holds = true; !equal(w.Value(), jsontree.Value{}, inner, depth+1) {
			return false
		}
	}
	return holds
}
