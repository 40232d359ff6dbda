package filter

import (
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

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
		if _, ok := sides[i].(absent); ok {
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
