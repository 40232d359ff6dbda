package filter

import (
	"github.com/google/cel-go/interpreter"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// activation gives an expression its variables, each made when it is first asked for.
type activation struct {
	typ    resource.Type
	change *event.Change
	trees  trees

	object, old any
}

// trees are the indexes of a change's objects, each made once, when it is first asked for: that
// takes a large part of the time of a filter where objects are large.
type trees struct{ object, old jsontree.Value }

func (t *trees) objectOf(c *event.Change) jsontree.Value {
	if !t.object.Exists() {
		t.object = jsontree.Parse(c.Object.Raw)
	}
	return t.object
}

func (t *trees) oldOf(c *event.Change) jsontree.Value {
	if !t.old.Exists() {
		t.old = jsontree.Parse(c.Old.Raw)
	}
	return t.old
}

// ResolveName gives a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		if a.object == nil {
			a.object = absent{}
			if a.change.Object != nil {
				a.object = valueOf(a.trees.objectOf(a.change))
			}
		}
		return a.object, true
	case "old":
		if a.old == nil {
			a.old = absent{}
			if a.change.Old != nil {
				a.old = valueOf(a.trees.oldOf(a.change))
			}
		}
		return a.old, true
	case "op":
		return string(a.change.Op), true
	case "meta":
		return meta{a.typ, a.change}, true
	}
	return nil, false
}

// Parent is none.
func (a *activation) Parent() interpreter.Activation { return nil }
