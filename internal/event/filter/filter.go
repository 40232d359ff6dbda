package filter

import (
	"bytes"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Why a change is kept back; for metrics.
const (
	ByOperation  = "operation"
	ByIgnored    = "ignored" // an update that touches nothing that counts
	ByExpression = "filter"
)

// Rules are what the configuration says. The zero Rules keep nothing back.
type Rules struct {
	// Operations that are sent; none for all.
	Operations []event.Op
	// Ignore are the paths whose changes are no news: an update that touches nothing else is kept
	// back.
	Ignore []resource.Path
	// On are the members of the object of which an update must touch one; none for any.
	On []string
	// Heartbeats of the kind are ignored.
	Heartbeats bool
	// Expression that must be true; nil for none.
	Expression *Expression
}

// Filter is the rules for one resource type.
type Filter struct {
	operations []event.Op
	on         []string
	ignored    *resource.Paths // nil when updates are not compared
	expression *Expression
	typ        resource.Type
}

// New makes the Filter of rules for a resource type; nil when they keep nothing back.
func New(rules Rules, t resource.Type) *Filter {
	f := &Filter{operations: rules.Operations, on: rules.On, expression: rules.Expression, typ: t}
	ignore := rules.Ignore
	if rules.Heartbeats {
		ignore = slices.Concat(ignore, heartbeats(t))
	}
	if len(ignore) > 0 || len(f.on) > 0 {
		f.ignored = resource.NewPaths(slices.Concat(ignore, always(f.on))...)
	}
	if f.ignored == nil && f.operations == nil && f.expression == nil {
		return nil
	}
	return f
}

// Keys are the configuration's keys by which changes of a type's objects are kept back; none when
// every version of an object is sent.
func (r Rules) Keys(t resource.Type) (keys []string) {
	add := func(keeps bool, key string) {
		if keeps {
			keys = append(keys, key)
		}
	}
	add(len(r.Operations) > 0 && !isSubset(versions, r.Operations), "operations")
	add(r.Expression != nil, "filter")
	add(len(r.Ignore) > 0, "ignoreChanges")
	add(len(r.On) > 0, "changedParts")
	add(r.Heartbeats && len(heartbeats(t)) > 0, "ignoreHeartbeats")
	return keys
}

// versions are the operations that report the versions of an object.
var versions = []event.Op{event.Added, event.Updated, event.Deleted}

func isSubset(of, all []event.Op) bool {
	return !slices.ContainsFunc(of, func(op event.Op) bool { return !slices.Contains(all, op) })
}

// NeedsOld reports whether the old object of updates has to be there.
func (f *Filter) NeedsOld() bool { return f.ignored != nil || f.expression.namesOld() }

// Rejects says why a change is kept back, "" when it is sent. When an expression fails it is sent,
// and the error says why.
func (f *Filter) Rejects(c *event.Change) (reason string, err error) {
	if f.operations != nil && !slices.Contains(f.operations, c.Op) {
		return ByOperation, nil
	}
	var known trees
	if f.ignored != nil && f.touchesNothing(c, &known) {
		return ByIgnored, nil
	}
	if f.expression == nil {
		return "", nil
	}
	matches, err := f.expression.matches(f.typ, c, known)
	if err == nil && !matches {
		return ByExpression, nil
	}
	return "", err
}

// touchesNothing reports whether a change is an update of nothing that counts.
func (f *Filter) touchesNothing(c *event.Change, known *trees) bool {
	if c.Op != event.Updated || c.Old == nil || c.Object == nil {
		return false
	}
	if len(f.on) == 0 {
		return bytes.Equal(c.Old.Raw, c.Object.Raw) ||
			diff.EqualValues(known.oldOf(c), known.objectOf(c), f.ignored)
	}
	return !slices.ContainsFunc(f.on, func(member string) bool {
		return !diff.Equal(orNull(resource.Member(c.Old.Raw, member)),
			orNull(resource.Member(c.Object.Raw, member)), f.ignored.Member(member))
	})
}

func orNull(value []byte) []byte {
	if value == nil {
		return []byte("null")
	}
	return value
}
