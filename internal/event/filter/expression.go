package filter

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// costLimit bounds one evaluation, in units of CEL: a comparison is about one, so this is enough
// for lists of thousands. Reaching it was measured to take some 30 ms; ten times as much takes
// seconds, since CEL accounts for loops in quadratic time.
const costLimit = 100_000

// Expression is a CEL expression over object, old, op and meta.
type Expression struct {
	text    string
	program cel.Program
	old     bool // it needs the old object
}

// environment has the helpers that expressions in Kubernetes have: strings, lists, sets, regular
// expressions, quantities, URLs, IPs.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true), cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(), ext.Sets(), ext.Lists(),
		library.Lists(), library.Regex(), library.URLs(), library.Quantity(), library.IP(),
		library.CIDR(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(), cel.ValidateHomogeneousAggregateLiterals()),
	)
	if err != nil {
		return nil, err
	}
	return env.Extend( // the libraries can't add their types to a provider that is not CEL's own
		cel.CustomTypeProvider(metaProvider{env.CELTypeProvider()}),
		cel.Variable("object", cel.DynType),
		cel.Variable("old", cel.DynType),
		cel.Variable("op", cel.StringType),
		cel.Variable("meta", metaType),
	)
})

// Compile reads an expression and checks its types. The error says where it is wrong, in line and
// column of the expression.
func Compile(text string) (*Expression, error) {
	checked, err := check(text)
	if err != nil {
		return nil, err
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("want a condition, which is true or false; this is of type %s", out)
	}
	if err := checkCondition(checked.NativeRep()); err != nil {
		return nil, err
	}
	program, err := programOf(checked)
	if err != nil {
		return nil, err
	}
	return &Expression{text: text, program: program, old: needsOld(checked.NativeRep())}, nil
}

// check reads an expression and checks its types.
func check(text string) (*cel.Ast, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, Describe(text, issues)
	}
	return checked, nil
}

// programOf makes what evaluates an expression, within costLimit.
func programOf(checked *cel.Ast) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	return env.Program(checked, cel.CustomDecoratorV2(compareAbsent),
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostLimit(costLimit),
		cel.CostTracking(&library.CostEstimator{}))
}

// assignment matches a lone = outside of strings, as the second group.
var assignment = regexp.MustCompile(`^(?:[^"'=!<>]|[=!<>]=|[!<>][^="']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*?(=)(?:[^=]|$)`)

// Describe returns what CEL's compiler found in an expression, in one line.
func Describe(text string, issues *cel.Issues) error {
	if at := assignment.FindStringSubmatchIndex(text); at != nil {
		before := text[:at[2]]
		line, column := strings.Count(before, "\n")+1, len(before)-strings.LastIndexByte(before, '\n')
		return fmt.Errorf(`%d:%d: "=" is not CEL: write "=="`, line, column)
	}
	var found []string
	for _, e := range issues.Errors() {
		found = append(found, fmt.Sprintf("%d:%d: "+
			"%s", e.Location.Line(), e.Location.Column()+1, e.Message))
	}
	return errors.New(strings.Join(found, "; "))
}

// needsOld reports whether an expression names old, or meta.changed, which is made with it.
func needsOld(a *ast.AST) bool {
	found := false
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			found = found || e.AsIdent() == "old"
		case ast.SelectKind:
			found = found || e.AsSelect().FieldName() == "changed"
		default: // it names nothing
		}
	}))
	return found
}

func (e *Expression) String() string { return e.text }
func (e *Expression) needsOld() bool { return e != nil && e.old }

func (e *Expression) matches(t resource.Type, c *event.Change, known objectTrees) (bool, error) {
	out, _, err := e.program.Eval(&activation{typ: t, change: c, trees: known})
	if err != nil {
		return false, err
	}
	switch v := out.(type) {
	case types.Bool:
		return bool(v), nil
	case absentValue:
		return false, nil // a condition that is not there does not hold
	}
	return false, fmt.Errorf("the expression gave %s, not true or false", out.Type())
}

// activation has the variables of an expression, each made when it is first asked for.
type activation struct {
	typ    resource.Type
	change *event.Change
	trees  objectTrees

	object, old any
}

// objectTrees are the indexes of a change's objects, each made once, when it is first asked for:
// that takes a large part of the time of a filter where objects are large.
type objectTrees struct{ object, old jsontree.Value }

func (t *objectTrees) objectOf(c *event.Change) jsontree.Value {
	if !t.object.Exists() {
		t.object = jsontree.Parse(c.Object.Raw)
	}
	return t.object
}

func (t *objectTrees) oldOf(c *event.Change) jsontree.Value {
	if !t.old.Exists() {
		t.old = jsontree.Parse(c.Old.Raw)
	}
	return t.old
}

func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		if a.object == nil {
			a.object = absentValue{}
			if a.change.Object != nil {
				a.object = valueOf(a.trees.objectOf(a.change))
			}
		}
		return a.object, true
	case "old":
		if a.old == nil {
			a.old = absentValue{}
			if a.change.Old != nil {
				a.old = valueOf(a.trees.oldOf(a.change))
			}
		}
		return a.old, true
	case "op":
		return string(a.change.Op), true
	case "meta":
		return meta{a.typ, a.change}, true
	}
	return nil, false
}

func (a *activation) Parent() interpreter.Activation { return nil }

// comparison is == or !=, to which a member that is absent is null. CEL itself knows null by its
// address, so that absent can't be it.
type comparison struct {
	interpreter.InterpretableCall
	not bool
}

// compareAbsent puts a comparison in the place of CEL's own.
func compareAbsent(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || call.Function() != operators.Equals && call.Function() != operators.NotEquals {
		return i, nil
	}
	return &comparison{InterpretableCall: call, not: call.Function() == operators.NotEquals}, nil
}

// Exec evaluates both sides and compares them.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var sides [2]ref.Val
	for i, arg := range c.Args() {
		sides[i] = arg.Exec(frame)
		if types.IsUnknownOrError(sides[i]) {
			return sides[i]
		}
		if _, ok := sides[i].(absentValue); ok {
			sides[i] = types.NullValue
		}
	}
	switch sides[1].(type) {
	case *object, *list: // a map that the expression made equals no map but those of its own kind
		sides[0], sides[1] = sides[1], sides[0]
	}
	return types.Bool((types.Equal(sides[0], sides[1]) == types.True) != c.not)
}

// Eval is Exec for a caller without a frame.
func (c *comparison) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

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
