// Package filter decides which changes are sent: by operation, by what an update touches, and by a
// CEL expression.
//
// In: changes, from an informer's controller. Out: for each, whether it is kept back, and why. A
// change that is kept back is settled: it counts as known, and is the old object of the next one.
//
// # Promises
//
//   - Nothing is kept back by mistake: where an expression fails, or costs too much, the change is
//     sent, and the error is the caller's to count. An update whose old object is not known is
//     never taken for noise.
//   - An expression decodes only what it names: of object and old the members it walks through, of
//     meta nothing.
//   - The cost of one evaluation is bounded. Comparing two objects takes time linear in their size.
//     Below 128 levels == compares bytes, as ignored paths do.
//
// Nothing here runs or blocks. A Filter and an Expression are immutable and may be used
// concurrently.
package filter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
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

// Keys returns the configuration's keys by which changes of a type's objects are kept back; none
// when every version of an object is sent.
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
func (f *Filter) NeedsOld() bool { return f.ignored != nil || f.expression.needsOld() }

// Rejects says why a change is kept back, "" when it is sent. When an expression fails it is sent,
// and the error says why.
func (f *Filter) Rejects(c *event.Change) (reason string, err error) {
	if f.operations != nil && !slices.Contains(f.operations, c.Op) {
		return ByOperation, nil
	}
	var known objectTrees
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
func (f *Filter) touchesNothing(c *event.Change, known *objectTrees) bool {
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

// checkCondition refuses an expression that has a part of an object in the place of a condition,
// where the part is known to be neither true nor false: object.metadata. CEL does not know the
// types of objects, and would find out for each change.
func checkCondition(a *ast.AST) error {
	return checkConditionAt(a, a.Expr())
}

func checkConditionAt(a *ast.AST, e ast.Expr) error {
	if path := objectPath(e); path != nil && !mayBeCondition(path) {
		at := a.SourceInfo().GetStartLocation(leftmost(e).ID())
		text := strings.Join(path, ".")
		remedy := "compare it"
		if len(path) > 1 {
			remedy += ", or write has(" + text + ")"
		}
		return fmt.Errorf("%d:%d: want a condition, which is true or false; %s is neither: %s",
			at.Line(), at.Column()+1, text, remedy)
	}
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
		for _, arg := range call.Args() {
			if err := checkConditionAt(a, arg); err != nil {
				return err
			}
		}
	}
	return nil
}

// objectPath returns the names by which an expression selects a part of an object, such as object,
// metadata, name; nil for any other expression.
func objectPath(e ast.Expr) []string {
	if e.Kind() == ast.IdentKind {
		if name := e.AsIdent(); name == "object" || name == "old" {
			return []string{name}
		}
		return nil
	}
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() {
		return nil
	}
	of := objectPath(e.AsSelect().Operand())
	if of == nil {
		return nil
	}
	return append(of, e.AsSelect().FieldName())
}

// leftmost returns the expression that the text of a path begins with.
func leftmost(e ast.Expr) ast.Expr {
	for e.Kind() == ast.SelectKind {
		e = e.AsSelect().Operand()
	}
	return e
}

// mayBeCondition reports whether a part of an object may be true or false. The types of metadata,
// kind and apiVersion are the same in all objects. No field of metadata is true or false.
func mayBeCondition(path []string) bool {
	return len(path) > 1 && !slices.Contains([]string{"metadata", "kind", "apiVersion"}, path[1])
}

// always returns the paths that differ in every update and say nothing by themselves.
func always(on []string) []resource.Path {
	paths := mustPaths("metadata.resourceVersion", "metadata.managedFields")
	if len(on) > 0 {
		paths = append(paths, mustPaths("metadata.generation")...) // it counts changes of the spec
	}
	return paths
}

// electionRecord is the annotation in which leaders renew their claim, where they do not use a
// Lease.
const electionRecord = `metadata.annotations["control-plane.alpha.kubernetes.io/leader"]`

// triggerTime is the annotation with the time of the last change of a Pod or Service that made a
// controller look at the endpoints.
const triggerTime = `metadata.annotations["endpoints.kubernetes.io/last-change-trigger-time"]`

// heartbeats returns the paths of a type that are written again and again to say that somebody is
// alive, or was looked at.
func heartbeats(t resource.Type) []resource.Path {
	switch t.String() {
	case "leases.coordination.k8s.io":
		return mustPaths("spec.renewTime")
	case "nodes":
		return mustPaths("status.conditions.*.lastHeartbeatTime")
	case "endpoints":
		return mustPaths(electionRecord, triggerTime, "subsets.*.addresses.*.targetRef.resourceVersion",
			"subsets.*.notReadyAddresses.*.targetRef.resourceVersion")
	case "endpointslices.discovery.k8s.io":
		return mustPaths(triggerTime, "endpoints.*.targetRef.resourceVersion")
	case "configmaps":
		return mustPaths(electionRecord)
	}
	return nil
}

func mustPaths(texts ...string) []resource.Path {
	var paths []resource.Path
	for _, text := range texts {
		p, err := resource.ParsePath(text)
		if err != nil {
			panic(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// maxDepth is the level below which values are compared as bytes.
const maxDepth = 128

// same reports whether two JSON values are equal as CEL values, in time linear in their size: CEL
// itself does not count what == costs before it is done.
func same(a, b jsontree.Value, depth int) bool {
	switch {
	case a.Equal(b):
		return true
	case depth == maxDepth:
		return false
	case a.IsObject() && b.IsObject():
		for pair := range jsontree.Pairs(a, b) {
			if !pair.Old.Exists() || !pair.New.Exists() || !same(pair.Old, pair.New, depth+1) {
				return false
			}
		}
		return true
	case a.IsArray() && b.IsArray():
		return sameItems(a, b, depth+1)
	case a.IsObject(), a.IsArray(), b.IsObject(), b.IsArray():
		return false
	}
	return types.Equal(valueOf(a), valueOf(b)) == types.True // 1 and 1.0, "a" and "\u0061"
}

func sameItems(a, b jsontree.Value, depth int) bool {
	for x, y := a.Walk(), b.Walk(); ; {
		more := x.Next()
		if y.Next() != more {
			return false
		}
		if !more {
			return true
		}
		if !same(x.Value(), y.Value(), depth) {
			return false
		}
	}
}
