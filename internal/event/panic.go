package event

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
)

// PanicError is a panic during the work on one object. It says nothing of what the object holds.
type PanicError struct {
	reason string
	stack  []byte
}

// maxStack bounds the stack in the log, in bytes.
const maxStack = 8 << 10

// NewPanicError makes the error of what recover has returned. Call it in the deferred function, so
// that the stack is that of the panic.
func NewPanicError(recovered any) *PanicError {
	e := &PanicError{reason: fmt.Sprintf("panic: %T", recovered), stack: debug.Stack()}
	if err, ok := recovered.(runtime.Error); ok { // another error may quote the object
		e.reason = "panic: " + err.Error()
	}
	e.stack = e.stack[:min(len(e.stack), maxStack)]
	return e
}

func (e *PanicError) Error() string { return e.reason }

// StackOf returns the stack of the panic that an error wraps, "" for none.
func StackOf(err error) string {
	e, ok := errors.AsType[*PanicError](err)
	if !ok {
		return ""
	}
	return string(e.stack)
}

// LogValue adds the stack where the error is logged.
func (e *PanicError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("reason", e.reason), slog.String("stack", string(e.stack)))
}
