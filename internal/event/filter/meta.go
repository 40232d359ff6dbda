package filter

import (
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

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

// ConvertToNative is not needed.
func (m meta) ConvertToNative(t reflect.Type) (any, error) { return nil, errNative(t) }

// ConvertToType returns the type itself and no other.
func (m meta) ConvertToType(t ref.Type) ref.Val { return convert(m, t) }

// Equal to nothing else.
func (m meta) Equal(other ref.Val) ref.Val { return types.Bool(m == other) }

// Type is metaType.
func (m meta) Type() ref.Type { return metaType }

// Value is itself.
func (m meta) Value() any { return m }

// metaProvider gives the compiler meta's fields.
type metaProvider struct{ types.Provider }

// FindStructType finds meta's type.
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

// FindStructFieldType finds the type of one of meta's fields.
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
