package cli

import "errors"

// Exit codes.
const (
	ExitClean   = 0
	ExitFailed  = 1 // something failed while it ran
	ExitRefused = 2 // it did not start: usage, configuration, surroundings
)

// exitError is an error with the code that the process ends with. Other errors come from cobra, and
// are about usage.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// Failed is an error of something that failed while it ran; nil for nil.
func Failed(err error) error { return withCode(ExitFailed, err) }

// Refused is an error because of which a command does not start; nil for nil.
func Refused(err error) error { return withCode(ExitRefused, err) }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// CodeOf is the code of a command that ended with an error. It is not known for one about usage,
// which is of cobra.
func CodeOf(err error) (code int, known bool) {
	e, ok := errors.AsType[*exitError](err)
	if !ok {
		return 0, false
	}
	return e.code, true
}
