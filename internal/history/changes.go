package history

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/jsontree"
)

// Change is a value that differs between two versions of an object.
type Change struct {
	// Path as people write it: spec.template.spec.containers[app].image. Items of lists of objects
	// have their name or type, others their place.
	Path string
	// Old and New are the JSON of the value; nil where there was or is none.
	Old, New []byte
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

// Changes are the values in which two versions of an object differ, but for the resourceVersion.
// nil is an object that is not there.
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
	w.list, w.paths = append(w.list, Change{path, older.Raw(), newer.Raw()}), w.paths+len(path)
}

func memberPath(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.ContainsAny(name, "./[] "):
		return path + "[" + name + "]"
	}
	return path + "." + name
}

// items compares lists: by the names of their items where all have one, else by place.
func (w *changeWalker) items(path string, older, newer jsontree.Value, depth int) {
	before, oldNames := itemsOf(older)
	now, newNames := itemsOf(newer)
	if oldNames == nil || newNames == nil {
		for i := range max(len(before), len(now)) {
			var a, b jsontree.Value
			if i < len(before) {
				a = before[i]
			}
			if i < len(now) {
				b = now[i]
			}
			if !w.item(path, strconv.Itoa(i), a, b, depth) {
				return
			}
		}
		return
	}
	for _, item := range now {
		var a jsontree.Value
		name := nameOf(item)
		if j, found := oldNames[name]; found {
			a = before[j]
		}
		if !w.item(path, name, a, item, depth) {
			return
		}
	}
	for _, item := range before {
		name := nameOf(item)
		if _, stays := newNames[name]; !stays && !w.item(path, name, item, jsontree.Value{}, depth) {
			return
		}
	}
}

// item walks over an item of a list. It reports whether there is room for more paths.
func (w *changeWalker) item(path, name string, older, newer jsontree.Value, depth int) bool {
	if !same(older, newer) {
		w.value(path+"["+name+"]", older, newer, depth)
	}
	return w.paths <= w.limit
}

// itemsOf are those of a list, and their places by name: nil where an item has none, or two the
// same.
func itemsOf(list jsontree.Value) (items []jsontree.Value, names map[string]int) {
	names = map[string]int{}
	for w := list.Walk(); w.Next(); {
		name := nameOf(w.Value())
		if _, again := names[name]; again || name == "" {
			names = nil
		}
		if names != nil {
			names[name] = len(items)
		}
		items = append(items, w.Value())
		if names == nil {
			for w.Next() {
				items = append(items, w.Value())
			}
			break
		}
	}
	return items, names
}

// nameOf is what tells an item of a list from the others, "" for nothing.
func nameOf(item jsontree.Value) string {
	if !item.IsObject() {
		return ""
	}
	for _, key := range []string{"name", "type", "uid", "ip"} {
		for w := item.Walk(); w.Next(); {
			if w.Name() == key {
				if raw := w.Value().Raw(); len(raw) > 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
					return string(raw[1 : len(raw)-1])
				}
			}
		}
	}
	return ""
}

// Field is the value at a path as Change has it, nil when there is none.
func Field(object []byte, path string) []byte {
	at := jsontree.Parse(object)
	for _, step := range steps(path) {
		var next jsontree.Value
		n, isNumber := -1, false
		if at.IsArray() {
			if number, err := strconv.Atoi(step); err == nil {
				n, isNumber = number, true
			}
		}
		for w, i := at.Walk(), 0; w.Next(); i++ {
			if at.IsObject() && w.Name() == step || isNumber && i == n || at.IsArray() && !isNumber && nameOf(w.Value()) == step {
				next = w.Value()
				break
			}
		}
		if at = next; !at.Exists() {
			return nil
		}
	}
	return at.Raw()
}

// steps takes a path apart.
func steps(path string) (list []string) {
	path = strings.TrimPrefix(path, ".")
	for path != "" {
		if strings.HasPrefix(path, "[") {
			if end := strings.IndexByte(path, ']'); end > 0 {
				list = append(list, path[1:end])
				path = strings.TrimPrefix(path[end+1:], ".")
				continue
			}
		}
		end := strings.IndexAny(path, ".[")
		if end <= 0 {
			return append(list, path)
		}
		list = append(list, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return list
}
