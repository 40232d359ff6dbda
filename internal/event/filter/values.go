package filter

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// FailedValue is the only value of an object for which an Index fails, or costs too much. So the
// objects that an index lacks can be asked for.
const FailedValue = "!failed"

// Index is a CEL expression over object that gives the values of an object in an index: a string,
// or a list of strings; null, or what is absent, is none.
type Index struct{ program cel.Program }

// CompileIndex reads an expression and checks its types, as Compile does.
func CompileIndex(text string) (*Index, error) {
	checked, err := check(text)
	if err != nil {
		return nil, err
	}
	out := checked.OutputType()
	if !out.IsAssignableType(cel.StringType) && !out.IsAssignableType(cel.ListType(cel.StringType)) {
		return nil, fmt.Errorf("want a string, or a list of strings; this is of type %s", out)
	}
	if namesOther(checked.NativeRep()) {
		return nil, errors.New("an index has only object: what it had been, and how it changed, is " +
			"not known when an index is built")
	}
	program, err := programOf(checked)
	return &Index{program}, err
}

// namesOther reports whether an expression names a variable that says something of a change.
func namesOther(a *ast.AST) (found bool) {
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			switch e.AsIdent() {
			case "old", "op", "meta":
				found = true
			}
		}
	}))
	return found
}

// Values appends the values of an object. It may be called concurrently.
func (x *Index) Values(dst []string, obj *resource.Object) (values []string) {
	defer func() {
		if recover() != nil {
			values = append(dst, FailedValue)
		}
	}()
	out, _, err := x.program.Eval(&activation{change: &event.Change{Object: obj}})
	if err != nil {
		return append(dst, FailedValue)
	}
	values, isString := appendValue(dst, out)
	if isString {
		return values
	}
	items, isList := out.(traits.Lister)
	if !isList {
		return append(dst, FailedValue)
	}
	values = dst
	for it := items.Iterator(); it.HasNext() == types.True; {
		if values, isString = appendValue(values, it.Next()); !isString {
			return append(dst, FailedValue)
		}
	}
	return values
}

// appendValue appends a string, or for null nothing.
func appendValue(dst []string, v ref.Val) (values []string, ok bool) {
	switch v := v.(type) {
	case types.String:
		return append(dst, string(v)), true
	case types.Null, absentValue:
		return dst, true
	}
	return dst, false
}
