package resource

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// PanicError is a panic in the work on one object.
type PanicError struct {
	// Stack is where it came from. Neither the Stack nor the error's text has anything of the
	// object.
	Stack []byte
	what  string
}

// Panicked makes an error of what recover has given.
func Panicked(v any) *PanicError {
	what := fmt.Sprintf("%T", v) // its text may be of the object
	if err, ok := v.(runtime.Error); ok {
		what = err.Error()
	}
	return &PanicError{debug.Stack(), what}
}

func (e *PanicError) Error() string { return "panic: " + e.what }

// IdentityOf is what an object says of itself.
func IdentityOf(o *Object) Identity { return Identity{o.Key(), o.UID, o.Version} }
