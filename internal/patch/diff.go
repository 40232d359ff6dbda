package patch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

// Diff gives the JSON Patch (RFC 6902) that makes the new version of the old one, [] when they are equal. It uses add, remove and
// replace. Of lists it finds what both begin and end with; what is between is compared item by item.
func Diff(old, changed []byte) []byte {
	d := differ{out: []byte{'['}}
	d.value(old, changed)
	return append(d.out, ']')
}

type differ struct {
	out  []byte
	path []byte // JSON Pointer to where the differ stands
}

// value writes what makes the one value of the other.
func (d *differ) value(old, changed []byte) {
	start := len(d.out)
	switch {
	case bytes.Equal(old, changed):
		return
	case isObject(old) && isObject(changed):
		d.object(old, changed)
	case isArray(old) && isArray(changed):
		d.array(old, changed)
	default:
		d.operation("replace", changed)
		return
	}
	if len(d.out)-start > len(changed)+len(d.path)+len(`{"op":"replace","path":"","value":}`) {
		d.out = d.out[:start] // so much is different that the value itself is shorter
		d.operation("replace", changed)
	}
}

func (d *differ) object(old, changed []byte) {
	before := membersOf(old)
	for name, value := range resource.Members(changed) {
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
	d.path = append(append(d.path, '/'), pointerEscapes.Replace(name)...)
	do()
	d.path = d.path[:here]
}

func (d *differ) item(index int, do func()) { d.at(strconv.Itoa(index), do) }

// operation writes one operation at the path; value is nil for a removal.
func (d *differ) operation(op string, value []byte) {
	if len(d.out) > 1 {
		d.out = append(d.out, ',')
	}
	d.out = append(append(append(d.out, `{"op":"`...), op...), `","path":`...)
	d.out = appendQuoted(d.out, string(d.path))
	if value != nil {
		d.out = append(append(d.out, `,"value":`...), value...)
	}
	d.out = append(d.out, '}')
}
