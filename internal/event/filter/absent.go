package filter

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// absent is what stands where an object has nothing. It is null to those who compare it, an empty
// map to those who look into it, and no error as such. So object.metadata.labels.app == "web" is
// false of an object without labels.
type absent struct{}

// Get gives nothing again.
func (absent) Get(ref.Val) ref.Val { return absent{} }

// IsSet is false.
func (absent) IsSet(ref.Val) ref.Val { return types.False }

// Contains is false.
func (absent) Contains(ref.Val) ref.Val { return types.False }

// Size is 0.
func (absent) Size() ref.Val { return types.IntZero }

// Iterator has nothing.
func (absent) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, nil).Iterator()
}

// ConvertToNative is not needed.
func (absent) ConvertToNative(t reflect.Type) (any, error) { return nil, errNative(t) }

// ConvertToType gives the type of a map.
func (a absent) ConvertToType(t ref.Type) ref.Val { return convert(a, t) }

// Equal to another that is absent.
func (absent) Equal(other ref.Val) ref.Val {
	_, ok := other.(absent)
	return types.Bool(ok)
}

// Type is a map.
func (absent) Type() ref.Type { return types.MapType }

// Value is nothing.
func (absent) Value() any { return nil }
