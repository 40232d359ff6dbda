package filter

import (
	"github.com/google/cel-go/interpreter"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/jsontree"
	"github.com/kubebridge/bridge/internal/resource"
)

// activation gives an expression its variables, each made when it is first asked for.
type activation struct {
	typ    resource.Type
	change *event.Change

	object, old any
}

// ResolveName gives a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		if a.object == nil {
			a.object = whole(a.change.Object)
		}
		return a.object, true
	case "old":
		if a.old == nil {
			a.old = whole(a.change.Old)
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

// whole is an object as a value.
func whole(obj *resource.Object) any {
	if obj == nil {
		return absent{}
	}
	return valueOf(jsontree.Parse(obj.Raw))
}
