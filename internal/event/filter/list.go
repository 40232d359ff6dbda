package filter

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// list is a JSON array. Its items are made when an expression asks for one of them.
type list struct {
	json  jsontree.Value
	items traits.Lister // nil before
}

func (l *list) look() traits.Lister {
	if l.items == nil {
		var items []ref.Val
		for w := l.json.Walk(); w.Next(); {
			items = append(items, valueOf(w.Value()))
		}
		l.items = types.NewRefValList(types.DefaultTypeAdapter, items)
	}
	return l.items
}

// Equal compares with another list.
func (l *list) Equal(other ref.Val) ref.Val {
	if other, ok := other.(*list); ok {
		return types.Bool(same(l.json, other.json, 0))
	}
	return l.look().Equal(other)
}

// Add is the list with another one behind it.
func (l *list) Add(other ref.Val) ref.Val { return l.look().Add(other) }

// Contains reports whether an item is in the list.
func (l *list) Contains(item ref.Val) ref.Val { return l.look().Contains(item) }

// Get gives the item at an index.
func (l *list) Get(index ref.Val) ref.Val { return l.look().Get(index) }

// Iterator goes over the items.
func (l *list) Iterator() traits.Iterator { return l.look().Iterator() }

// Size is the number of items.
func (l *list) Size() ref.Val { return l.look().Size() }

// ConvertToNative gives a list of Go values.
func (l *list) ConvertToNative(t reflect.Type) (any, error) { return l.look().ConvertToNative(t) }

// ConvertToType gives a list, or its type.
func (l *list) ConvertToType(t ref.Type) ref.Val { return convert(l, t) }

// Type is a list.
func (l *list) Type() ref.Type { return types.ListType }

// Value is the items.
func (l *list) Value() any { return l.look().Value() }
