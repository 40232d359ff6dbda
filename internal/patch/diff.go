package patch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
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
	d.limit = len(d.out) + d.cost("replace", changed)
	d.value(old, changed)
	return append(d.out, ']')
}

// differ writes a patch. Every operation repeats the path, so the operations may be far longer than
// the value that they change. Each is compared with the limit before it is written.
type differ struct {
	out   []byte
	path  []byte // JSON Pointer to the current value, escaped for a JSON string
	limit int    // of len(out): replacing the value is shorter than anything longer
	over  bool   // the limit is reached: unwind to a value that can be replaced
}

// value writes the operations that turn one value into the other.
func (d *differ) value(old, changed []byte) {
	start, outer := len(d.out), d.limit
	if bytes.Equal(old, changed) {
		return
	}
	d.limit = min(outer, start+d.cost("replace", changed))
	switch {
	case isObject(old) && isObject(changed):
		d.object(old, changed)
	case isArray(old) && isArray(changed):
		d.array(old, changed)
	default:
		d.over = true
	}
	d.limit = outer
	if d.over {
		d.out, d.over = d.out[:start], false
		d.operation("replace", changed)
	}
}

func (d *differ) object(old, changed []byte) {
	before := membersOf(old)
	for name, value := range resource.Members(changed) {
		if d.over {
			return
		}
		was := before.take(name)
		d.at(name, func() {
			if was == nil {
				d.operation("add", value)
			} else {
				d.value(was, value)
			}
		})
	}
	for i := range before.list {
		if d.over {
			return
		}
		if !before.list[i].taken {
			d.at(before.list[i].name, func() { d.operation("remove", nil) })
		}
	}
}

func (d *differ) array(old, changed []byte) {
	before, after := slices.Collect(resource.Items(old)), slices.Collect(resource.Items(changed))
	first := 0
	for first < min(len(before), len(after)) && bytes.Equal(before[first], after[first]) {
		first++
	}
	before, after = before[first:], after[first:]
	for len(before) > 0 && len(after) > 0 && bytes.Equal(before[len(before)-1], after[len(after)-1]) {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	both := min(len(before), len(after))
	for i := range both {
		d.item(first+i, func() { d.value(before[i], after[i]) })
	}
	for range before[both:] { // each removal moves the next one there
		d.item(first+both, func() { d.operation("remove", nil) })
	}
	for i, value := range after[both:] {
		d.item(first+both+i, func() { d.operation("add", value) })
	}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// at does something one level deeper.
func (d *differ) at(name string, do func()) {
	here := len(d.path)
	if here+len(name) >= maxPath {
		d.over = true
	}
	if d.over {
		return
	}
	quoted := appendQuoted(nil, pointerEscapes.Replace(name))
	d.path = append(append(d.path, '/'), quoted[1:len(quoted)-1]...)
	do()
	d.path = d.path[:here]
}

func (d *differ) item(index int, do func()) { d.at(strconv.Itoa(index), do) }

// operation writes one operation at the path unless it exceeds the limit. value is nil for remove.
func (d *differ) operation(op string, value []byte) {
	if len(d.out)+d.cost(op, value) > d.limit {
		d.over = true
		return
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

// cost is the length of an operation at the path, including the comma before it.
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
