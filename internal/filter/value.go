package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/kubebridge/bridge/internal/resource"
)

// valueOf is a JSON value as a CEL value. Objects and lists are not looked into before somebody asks.
func valueOf(raw []byte) ref.Val {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return types.NullValue
	}
	switch raw[0] {
	case '{':
		return &object{raw: raw}
	case '[':
		return listOf(raw)
	case '"':
		text, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return types.NewErr("a string is not valid")
		}
		return types.String(text)
	case 't', 'f':
		return types.Bool(raw[0] == 't')
	case 'n':
		return types.NullValue
	}
	return numberOf(string(raw))
}

func listOf(raw []byte) ref.Val {
	var items []ref.Val
	for item := range resource.Items(raw) {
		items = append(items, valueOf(item))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, items)
}

func numberOf(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return types.NewErr("a number is out of range")
	}
	return types.Double(f)
}

// object is a JSON object. It is an Indexer and no Mapper, so that a member that is not there is absent and no error.
type object struct {
	raw     []byte
	members []member // nil before it was looked into
}

type member struct {
	name  string
	raw   []byte
	value ref.Val // nil before somebody asked
}

func (o *object) look() []member {
	if o.members == nil {
		o.members = []member{}
		for name, value := range resource.Members(o.raw) {
			o.members = append(o.members, member{name: name, raw: value})
		}
	}
	return o.members
}

func (o *object) find(name string) ref.Val {
	members := o.look()
	for i := range members {
		m := &members[i]
		if m.name != name {
			continue
		}
		if m.value == nil {
			m.value = valueOf(m.raw)
		}
		return m.value
	}
	return nil
}

// Get gives a member, or absent.
func (o *object) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(index)
	}
	if v := o.find(string(name)); v != nil {
		return v
	}
	return absent{}
}

// IsSet says whether a member is there, for has().
func (o *object) IsSet(field ref.Val) ref.Val { return o.Contains(field) }

// Contains says whether a member is there, for in.
func (o *object) Contains(value ref.Val) ref.Val {
	name, ok := value.(types.String)
	return types.Bool(ok && o.find(string(name)) != nil)
}

// Size is the number of members.
func (o *object) Size() ref.Val { return types.Int(len(o.look())) }

// Iterator goes over the names.
func (o *object) Iterator() traits.Iterator {
	var names []ref.Val
	for _, m := range o.look() {
		names = append(names, types.String(m.name))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, names).Iterator()
}

// Equal compares with another object, or with a map that the expression made.
func (o *object) Equal(other ref.Val) ref.Val {
	var find func(name string) ref.Val
	switch other := other.(type) {
	case *object:
		if bytes.Equal(o.raw, other.raw) {
			return types.True
		}
		find = other.find
	case traits.Mapper:
		find = func(name string) ref.Val { v, _ := other.Find(types.String(name)); return v }
	default:
		return types.False
	}
	if size, ok := other.(traits.Sizer); !ok || size.Size() != o.Size() {
		return types.False
	}
	for _, m := range o.look() {
		if v := find(m.name); v == nil || types.Equal(o.find(m.name), v) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative is not needed.
func (o *object) ConvertToNative(t reflect.Type) (any, error) { return nil, errNative(t) }

// ConvertToType gives a map, or its type.
func (o *object) ConvertToType(t ref.Type) ref.Val { return convert(o, t) }

// Type is a map.
func (o *object) Type() ref.Type { return types.MapType }

// Value decodes everything.
func (o *object) Value() any {
	var v map[string]any
	_ = json.Unmarshal(o.raw, &v) // it was valid when it came
	return v
}

func errNative(t reflect.Type) error { return fmt.Errorf("can't be made a %s", t) }

func convert(v ref.Val, t ref.Type) ref.Val {
	switch t.TypeName() {
	case v.Type().TypeName():
		return v
	case types.TypeType.TypeName():
		return v.Type().(*types.Type)
	}
	return types.NewErr("type conversion error from %s to %s", v.Type(), t)
}
