package diff

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

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
