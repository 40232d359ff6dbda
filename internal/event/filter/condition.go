package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

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
