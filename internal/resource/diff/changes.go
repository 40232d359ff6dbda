package diff

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Change is a value that differs between two versions of an object.
type Change struct {
	// Path as people write it: spec.template.spec.containers[app].image. Items of lists of objects
	// have their name or type where no two have the same, others their index. A name that could be
	// taken for an index is in quotes: containers["1"].
	Path string
	// Old and New are the JSON of the value; nil where there was or is none.
	Old, New []byte
	// Omitted: Old and New are nil because one of them is too long for where the change is shown.
	Omitted bool
}

// IsHeartbeat reports whether the value only says that somebody is alive, or counts versions.
func (c *Change) IsHeartbeat() bool {
	leaf := c.Path[strings.LastIndexAny(c.Path, ".]")+1:]
	switch leaf {
	case "lastHeartbeatTime", "lastProbeTime", "renewTime", "resourceVersion", "observedGeneration":
		return true
	}
	return c.Path == "metadata.generation" || strings.HasPrefix(c.Path, "metadata.managedFields") ||
		strings.HasSuffix(c.Path, "annotations[control-plane.alpha.kubernetes.io/leader]")
}

// maxChangeDepth is the level below which values are compared as a whole.
const maxChangeDepth = 64

// Changes returns the values in which two versions of an object differ, but for the
// resourceVersion. nil is an object that is not there.
func Changes(older, newer []byte) (list []Change) {
	var before, now jsontree.Value
	if older != nil {
		before = jsontree.Parse(older)
	}
	if newer != nil {
		now = jsontree.Parse(newer)
	}
	w := changeWalker{limit: math.MaxInt}
	if !same(before, now) {
		w.value("", before, now, 0)
	}
	return w.list
}

// changeWalker collects changes. A path may be as long as an object, and be above most of its
// values: so paths have a limit, and what would pass it is one change as a whole.
type changeWalker struct {
	list  []Change
	paths int // bytes of the paths in list
	limit int // for paths, of the innermost value that is walked
}

// Paths below a value may have pathsPerByte times its bytes in both versions, and always minPaths:
// a small value may be far down.
const (
	pathsPerByte = 4
	minPaths     = 4 << 10
)

// same reports whether both values are there, and equal.
func same(older, newer jsontree.Value) bool {
	return older.Exists() && newer.Exists() && older.Equal(newer)
}

// value walks over two values that are not the same.
func (w *changeWalker) value(path string, older, newer jsontree.Value, depth int) {
	if path == "metadata.resourceVersion" {
		return
	}
	before, paths, limit := len(w.list), w.paths, w.limit
	own := paths + minPaths + pathsPerByte*(len(older.Raw())+len(newer.Raw()))
	w.limit = min(limit, own)
	isWhole := false
	switch {
	case depth < maxChangeDepth && older.IsObject() && newer.IsObject():
		for pair := range jsontree.Pairs(older, newer) {
			if !same(pair.Old, pair.New) {
				w.value(memberPath(path, pair.Name), pair.Old, pair.New, depth+1)
			}
			if w.paths > w.limit {
				break
			}
		}
	case depth < maxChangeDepth && older.IsArray() && newer.IsArray():
		w.items(path, older, newer, depth+1)
	default:
		isWhole = true
		w.add(path, older, newer)
	}
	if w.limit = limit; w.paths > own && !isWhole {
		w.list, w.paths = w.list[:before], paths
		w.add(path, older, newer)
	}
}

func (w *changeWalker) add(path string, older, newer jsontree.Value) {
	w.list, w.paths = append(w.list, Change{Path: path, Old: older.Raw(), New: newer.Raw()}),
		w.paths+len(path)
}

func memberPath(path, name string) string {
	switch {
	case path == "":
		return name
	case name == "" || strings.ContainsAny(name, `[]"`):
		return path + "[" + strconv.Quote(name) + "]"
	case strings.ContainsAny(name, "./ "):
		return path + "[" + name + "]"
	}
	return path + "." + name
}

// itemPath returns the path of an item that is known by its name.
func itemPath(path, name string) string {
	if _, err := strconv.Atoi(name); err == nil || strings.ContainsAny(name, `[]"`) {
		name = strconv.Quote(name)
	}
	return path + "[" + name + "]"
}

// items compares lists: by the names of their items where all have one, else by index.
func (w *changeWalker) items(path string, older, newer jsontree.Value, depth int) {
	before, now := listOf(older), listOf(newer)
	if before.names == nil || now.names == nil {
		for i := range max(len(before.items), len(now.items)) {
			var a, b jsontree.Value
			if i < len(before.items) {
				a = before.items[i]
			}
			if i < len(now.items) {
				b = now.items[i]
			}
			if !w.item(path+"["+strconv.Itoa(i)+"]", a, b, depth) {
				return
			}
		}
		return
	}
	for i, name := range now.names {
		var a jsontree.Value
		if j := before.find(name, i); j >= 0 {
			a = before.items[j]
		}
		if !w.item(itemPath(path, name), a, now.items[i], depth) {
			return
		}
	}
	for i, name := range before.names {
		if now.find(name, i) < 0 &&
			!w.item(itemPath(path, name), before.items[i], jsontree.Value{}, depth) {
			return
		}
	}
}

// item walks over an item of a list. It reports whether there is room for more paths.
func (w *changeWalker) item(path string, older, newer jsontree.Value, depth int) bool {
	if !same(older, newer) {
		w.value(path, older, newer, depth)
	}
	return w.paths <= w.limit
}

// listItems are the items of a list, with their names: nil where an item has none, or two the same.
type listItems struct {
	items []jsontree.Value
	names []string
	of    map[string]int // index by name; nil for few
}

// fewItems are found as fast without a map.
const fewItems = 16

func listOf(v jsontree.Value) (l listItems) {
	for w := v.Walk(); w.Next(); {
		l.items = append(l.items, w.Value())
	}
	l.names = make([]string, 0, len(l.items))
	if len(l.items) > fewItems {
		l.of = make(map[string]int, len(l.items))
	}
	for i, item := range l.items {
		name := nameOf(item)
		if name == "" || l.find(name, -1) >= 0 {
			l.names = nil
			break
		}
		l.names = append(l.names, name)
		if l.of != nil {
			l.of[name] = i
		}
	}
	return l
}

// find returns the index of a name, -1 for none. Most items are where they were: at likely.
func (l *listItems) find(name string, likely int) int {
	if likely >= 0 && likely < len(l.names) && l.names[likely] == name {
		return likely
	}
	if l.of == nil {
		return slices.Index(l.names, name)
	}
	if i, is := l.of[name]; is {
		return i
	}
	return -1
}

// itemNames are the members that distinguish an item of a list from the others: the first one that
// it has.
var itemNames = []string{"name", "type", "uid", "ip"}

// nameOf returns what distinguishes an item of a list from the others, "" for nothing.
func nameOf(item jsontree.Value) (name string) {
	if !item.IsObject() {
		return ""
	}
	best := len(itemNames)
	for w := item.Walk(); w.Next() && best > 0; {
		rank := slices.Index(itemNames[:best], w.Name())
		if rank < 0 {
			continue
		}
		if raw := w.Value().Raw(); len(raw) > 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
			name, best = string(raw[1:len(raw)-1]), rank
		}
	}
	return name
}

// Field returns the value at a path as Change has it, nil when there is none. Of several items of a
// list with one name it is the last.
func Field(object []byte, path string) []byte {
	at := jsontree.Parse(object)
	for path = strings.TrimPrefix(path, "."); path != "" && at.Exists(); {
		var step string
		var isQuoted bool
		step, isQuoted, path = cutStep(path)
		at = member(at, step, isQuoted)
	}
	return at.Raw() // nil for what does not exist
}

// member returns the member or the item of a step. A number is the index of an item unless it was
// in quotes.
func member(of jsontree.Value, step string, isQuoted bool) (found jsontree.Value) {
	index := -1
	if n, err := strconv.Atoi(step); err == nil && !isQuoted && of.IsArray() {
		index = n
	}
	for w, i := of.Walk(), 0; w.Next(); i++ {
		switch {
		case of.IsObject():
			if w.Name() == step {
				return w.Value()
			}
		case index >= 0:
			if i == index {
				return w.Value()
			}
		case nameOf(w.Value()) == step:
			found = w.Value()
		}
	}
	return found
}

// cutStep takes the first step of a path that is not empty.
func cutStep(path string) (step string, isQuoted bool, rest string) {
	if strings.HasPrefix(path, "[") {
		if quoted, err := strconv.QuotedPrefix(path[1:]); err == nil {
			step, err = strconv.Unquote(quoted)
			if rest, is := strings.CutPrefix(path[1+len(quoted):], "]"); is && err == nil {
				return step, true, strings.TrimPrefix(rest, ".")
			}
		}
		if end := strings.IndexByte(path, ']'); end > 0 {
			return path[1:end], false, strings.TrimPrefix(path[end+1:], ".")
		}
	}
	if end := strings.IndexAny(path, ".["); end > 0 {
		return path[:end], false, strings.TrimPrefix(path[end:], ".")
	}
	return path, false, ""
}

// Shape has where the members of an object lie in its JSON; nil for what is no object. Most of
// them stay as they were from one version to the next. With the shape of the version before, those
// are compared as bytes, and only what differs is parsed.
type Shape []memberSpan

// memberSpan is where a member lies. The name has its quotes.
type memberSpan struct {
	name, nameEnd, value, end uint32
	// isSame: the value was found to be that of the version before.
	isSame bool
}

func (p memberSpan) nameIn(data []byte) []byte { return data[p.name:p.nameEnd] }

func (p memberSpan) in(data []byte) []byte { return data[p.value:p.end] }

// ShapeOf returns the shape of data. older is the version before, nil for none: an object or array
// that begins as the member of the same index ends as that one.
func ShapeOf(data, older []byte, old Shape) Shape { return shapeOf(data, older, old, "") }

// ShapeUntil returns the shape of data up to a member: what is behind that is not read.
func ShapeUntil(data []byte, name string) Shape { return shapeOf(data, nil, nil, name) }

func shapeOf(data, older []byte, old Shape, until string) Shape {
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
		p := memberSpan{name: uint32(i), nameEnd: uint32(jsontree.End(data, i))}
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
		if until != "" && list[len(list)-1:].Member(data, until) != nil {
			return list
		}
	}
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && data[i] <= ' ' {
		i++
	}
	return i
}

// Member returns the value of a member, nil for none.
func (s Shape) Member(data []byte, name string) (value []byte) {
	for _, p := range s {
		if is := p.nameIn(data); len(is) == len(name)+2 && string(is[1:len(is)-1]) == name {
			value = p.in(data)
		}
	}
	return value
}

// Size returns how many bytes it takes in memory.
func (s Shape) Size() int { return len(s) * int(unsafe.Sizeof(memberSpan{})) }

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

// ChangesByShape returns the Changes between two versions whose shapes are known.
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
