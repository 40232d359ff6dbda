package tail

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"

	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/publisher"
)

// costLimit bounds one evaluation, in units of CEL: a comparison is about one.
const costLimit = 10_000

// Filter says which events are shown.
type Filter struct{ program cel.Program } // nil: all

// environment has the variables of a filter in the configuration that an event knows, under their
// names there, and what only somebody who looks at a sink can ask for.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{ext.Strings(), cel.EagerlyValidateDeclarations(true)}
	for kind, names := range map[*cel.Type][]string{
		cel.StringType: {
			"op", "meta.kind", "meta.apiVersion", "meta.group", "meta.resource", "meta.namespace",
			"meta.name",
			"meta.uid", "meta.resourceVersion", "meta.manager", "sink", "outcome", "informer", "id", "type",
			"subject",
		},
		cel.BoolType: {"meta.initial", "meta.inferred"},
		cel.IntType:  {"attempts", "bytes"},
	} {
		for _, name := range names {
			options = append(options, cel.Variable(name, kind))
		}
	}
	return cel.NewEnv(options...)
})

// ParseFilter reads a CEL condition, such as meta.resource == "pods" && op != "updated". Events for
// which it fails are shown. "" shows everything.
func ParseFilter(text string) (Filter, error) {
	if text == "" {
		return Filter{}, nil
	}
	env, err := environment()
	if err != nil {
		return Filter{}, fmt.Errorf("CEL: %w", err)
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return Filter{}, fmt.Errorf("filter: %w", filter.Describe(text, issues))
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) {
		return Filter{}, fmt.Errorf("filter: want a condition, which is true or "+
			"false; this is of type %s", out)
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(costLimit))
	return Filter{program}, err
}

// match reports whether an item of a sink is shown.
func (f Filter) match(sink string, it *publisher.Item) bool {
	if f.program == nil {
		return true
	}
	out, _, err := f.program.Eval(&variables{sink, it})
	return err != nil || out == types.True
}

// variables gives a filter what it names of an item of a sink.
type variables struct {
	sink string
	item *publisher.Item
}

// ResolveName implements interpreter.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	e := v.item.Message.Event
	switch name {
	case "op":
		return string(e.Op), true
	case "meta.kind":
		return e.Kind, true
	case "meta.apiVersion":
		return e.APIVersion, true
	case "meta.group":
		return e.Group, true
	case "meta.resource":
		return e.Resource, true
	case "meta.namespace":
		return e.Namespace, true
	case "meta.name":
		return e.Name, true
	case "meta.uid":
		return e.UID, true
	case "meta.resourceVersion":
		return e.ResourceVersion, true
	case "meta.manager":
		return e.Manager, true
	case "meta.initial":
		return e.Initial, true
	case "meta.inferred":
		return e.Inferred, true
	case "sink":
		return v.sink, true
	case "outcome":
		return string(v.item.Outcome()), true
	case "informer":
		return e.Informer, true
	case "id":
		return e.ID, true
	case "type":
		return e.Type, true
	case "subject":
		return e.Subject, true
	case "attempts":
		return v.item.Attempts(), true
	case "bytes":
		return len(e.Data), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (v *variables) Parent() interpreter.Activation { return nil }
