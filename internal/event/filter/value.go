package filter

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// valueOf returns a JSON value as a CEL value. Objects and lists are not looked into before an
// expression asks.
func valueOf(v jsontree.Value) ref.Val {
	raw := v.Raw()
	switch {
	case !v.Exists() || v.IsNull():
		return types.NullValue
	case v.IsObject():
		return &object{json: v}
	case v.IsArray():
		return &list{json: v}
	case raw[0] == '"':
		text, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return types.NewErr("a string is not valid")
		}
		return types.String(text)
	case raw[0] == 't' || raw[0] == 'f':
		return types.Bool(raw[0] == 't')
	}
	return numberOf(string(raw))
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

// object is a JSON object. It is an Indexer and no Mapper, so that a missing member is absent and
// not an error.
type object struct {
	json    jsontree.Value
	members *jsontree.Members // nil before an expression looked into it
	values  []ref.Val         // of the members; nil before an expression asked
}

func (o *object) index() *jsontree.Members {
	if o.members == nil {
		o.members = o.json.Members()
		o.values = make([]ref.Val, len(o.members.List))
	}
	return o.members
}

func (o *object) find(name string) ref.Val {
	i := o.index().Find(name)
	if i < 0 {
		return nil
	}
	if o.values[i] == nil {
		o.values[i] = valueOf(o.members.List[i].Value)
	}
	return o.values[i]
}

// Get returns a member, or absent.
func (o *object) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(index)
	}
	if v := o.find(string(name)); v != nil {
		return v
	}
	return absentValue{}
}

// IsSet reports whether a member is there, for has().
func (o *object) IsSet(field ref.Val) ref.Val { return o.Contains(field) }

// Contains reports whether a member is there, for in.
func (o *object) Contains(value ref.Val) ref.Val {
	name, ok := value.(types.String)
	return types.Bool(ok && o.find(string(name)) != nil)
}

// Size returns the number of members. CEL asks for it to account for a comparison, which needs no
// table of them.
func (o *object) Size() ref.Val {
	if o.members != nil {
		return types.Int(len(o.members.List))
	}
	n := 0
	for w := o.json.Walk(); w.Next(); {
		n++
	}
	return types.Int(n)
}

// Iterator goes over the names.
func (o *object) Iterator() traits.Iterator {
	var names []ref.Val
	for _, m := range o.index().List {
		names = append(names, types.String(m.Name))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, names).Iterator()
}

// Equal compares with another object, or with a map that the expression made.
func (o *object) Equal(other ref.Val) ref.Val {
	switch other := other.(type) {
	case *object:
		return types.Bool(same(o.json, other.json, 0))
	case traits.Mapper:
		return types.Bool(other.Size() == o.Size() && o.sameAs(other))
	}
	return types.False
}

// sameAs reports whether a map has all members of the object.
func (o *object) sameAs(other traits.Mapper) bool {
	for _, m := range o.index().List {
		v, found := other.Find(types.String(m.Name))
		if !found || types.Equal(o.find(m.Name), v) != types.True {
			return false
		}
	}
	return true
}

func (o *object) ConvertToNative(t reflect.Type) (any, error) { return nil, errNative(t) }
func (o *object) ConvertToType(t ref.Type) ref.Val            { return convert(o, t) }
func (o *object) Type() ref.Type                              { return types.MapType }

// Value decodes everything.
func (o *object) Value() any {
	var v map[string]any
	_ = json.Unmarshal(o.json.Raw(), &v) // it was valid when it came
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

// list is a JSON array. Its items are made when an expression asks for one of them.
type list struct {
	json  jsontree.Value
	items traits.Lister // nil before
}

func (l *list) index() traits.Lister {
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
	return l.index().Equal(other)
}

// Add returns the list with another one behind it.
func (l *list) Add(other ref.Val) ref.Val     { return l.index().Add(other) }
func (l *list) Contains(item ref.Val) ref.Val { return l.index().Contains(item) }
func (l *list) Get(index ref.Val) ref.Val     { return l.index().Get(index) }

// Iterator goes over the items.
func (l *list) Iterator() traits.Iterator { return l.index().Iterator() }

// Size returns the number of items.
func (l *list) Size() ref.Val { return l.index().Size() }

// ConvertToNative returns a list of Go values.
func (l *list) ConvertToNative(t reflect.Type) (any, error) { return l.index().ConvertToNative(t) }
func (l *list) ConvertToType(t ref.Type) ref.Val            { return convert(l, t) }
func (l *list) Type() ref.Type                              { return types.ListType }
func (l *list) Value() any                                  { return l.index().Value() }

// absentValue is what stands where an object has nothing. It is null to those who compare it, an
// empty map to those who look into it, and no error as such. So object.metadata.labels.app == "web"
// is false of an object without labels.
type absentValue struct{}

// Get gives nothing again.
func (absentValue) Get(ref.Val) ref.Val      { return absentValue{} }
func (absentValue) IsSet(ref.Val) ref.Val    { return types.False }
func (absentValue) Contains(ref.Val) ref.Val { return types.False }
func (absentValue) Size() ref.Val            { return types.IntZero }

func (absentValue) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, nil).Iterator()
}

func (absentValue) ConvertToNative(t reflect.Type) (any, error) { return nil, errNative(t) }
func (a absentValue) ConvertToType(t ref.Type) ref.Val          { return convert(a, t) }

// Equal to another that is absent.
func (absentValue) Equal(other ref.Val) ref.Val {
	_, ok := other.(absentValue)
	return types.Bool(ok)
}

func (absentValue) Type() ref.Type { return types.MapType }
func (absentValue) Value() any     { return nil }

// meta is what is known of a change without a look into its object; labels and annotations but for
// these.
type meta struct {
	typ    resource.Type
	change *event.Change
}

const metaName = "bridge.Meta"

var metaType = cel.ObjectType(metaName, traits.IndexerType, traits.FieldTesterType)

// metaFields are the fields of meta, in the words of the event's attributes.
var metaFields = map[string]struct {
	typ *types.Type
	of  func(m meta) ref.Val
}{
	"kind": {types.StringType, func(m meta) ref.Val { return types.String(m.typ.Kind) }},
	"apiVersion": {
		types.StringType,
		func(m meta) ref.Val { return types.String(m.typ.In(m.object().APIVersion).APIVersion()) },
	},
	"group":    {types.StringType, func(m meta) ref.Val { return types.String(m.typ.Group) }},
	"resource": {types.StringType, func(m meta) ref.Val { return types.String(m.typ.Resource) }},
	"namespace": {
		types.StringType,
		func(m meta) ref.Val { namespace, _ := m.change.Key.Split(); return types.String(namespace) },
	},
	"name": {
		types.StringType,
		func(m meta) ref.Val { _, name := m.change.Key.Split(); return types.String(name) },
	},
	"uid": {types.StringType, func(m meta) ref.Val { return types.String(m.change.UID) }},
	"resourceVersion": {
		types.StringType,
		func(m meta) ref.Val { return types.String(m.change.Version) },
	},
	"initial":  {types.BoolType, func(m meta) ref.Val { return types.Bool(m.change.Initial) }},
	"inferred": {types.BoolType, func(m meta) ref.Val { return types.Bool(m.change.Inferred) }},
	"manager": {
		types.StringType,
		func(m meta) ref.Val { return types.String(m.change.By.Manager) },
	},
	"changed":    {types.NewListType(types.StringType), meta.changed},
	"generation": {types.IntType, func(m meta) ref.Val { return types.Int(m.object().Generation) }},
	"deleting": {
		types.BoolType,
		func(m meta) ref.Val { return types.Bool(m.object().DeletionTimestamp != "") },
	},
	"labels": {
		types.NewMapType(types.StringType, types.StringType),
		func(m meta) ref.Val { return m.inMetadata("labels") },
	},
	"annotations": {
		types.NewMapType(types.StringType, types.StringType),
		func(m meta) ref.Val { return m.inMetadata("annotations") },
	},
}

// changed returns the parts that an update changed. Where the version before is not known, any may
// have: these are all that the object has.
func (m meta) changed() ref.Val {
	var old []byte
	if m.change.Old != nil {
		old = m.change.Old.Raw
	}
	return types.NewStringList(types.DefaultTypeAdapter, diff.Parts(old, m.object().Raw))
}

// object returns the change's, or an empty one.
func (m meta) object() *resource.Object {
	if m.change.Object == nil {
		return &resource.Object{}
	}
	return m.change.Object
}

func (m meta) inMetadata(name string) ref.Val {
	if m.change.Object == nil {
		return absentValue{}
	}
	metadata := resource.Member(m.change.Object.Raw, "metadata")
	if value := resource.Member(metadata, name); value != nil {
		return valueOf(jsontree.Parse(value))
	}
	return absentValue{}
}

// Get returns the value of a field.
func (m meta) Get(index ref.Val) ref.Val {
	name, _ := index.(types.String)
	if f, ok := metaFields[string(name)]; ok {
		return f.of(m)
	}
	return types.NewErr("no such field in meta: %v", index)
}

// IsSet reports whether a field is there, for has().
func (m meta) IsSet(field ref.Val) ref.Val {
	_, missing := m.Get(field).(absentValue)
	return types.Bool(!missing)
}

func (m meta) ConvertToNative(t reflect.Type) (any, error) { return nil, errNative(t) }

// ConvertToType returns the type itself and no other.
func (m meta) ConvertToType(t ref.Type) ref.Val { return convert(m, t) }

// Equal to nothing else.
func (m meta) Equal(other ref.Val) ref.Val { return types.Bool(m == other) }
func (m meta) Type() ref.Type              { return metaType }
func (m meta) Value() any                  { return m }

// metaProvider gives the compiler meta's fields.
type metaProvider struct{ types.Provider }

func (p metaProvider) FindStructType(name string) (*types.Type, bool) {
	if name == metaName {
		return types.NewTypeTypeWithParam(metaType), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames lists meta's fields.
func (p metaProvider) FindStructFieldNames(name string) ([]string, bool) {
	if name != metaName {
		return p.Provider.FindStructFieldNames(name)
	}
	var list []string
	for field := range metaFields {
		list = append(list, field)
	}
	return list, true
}

func (p metaProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if name != metaName {
		return p.Provider.FindStructFieldType(name, field)
	}
	f, ok := metaFields[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: f.typ}, true // read through Get
}
