package sinks

import (
	"context"
	"errors"

	"github.com/kubebridge/bridge/internal/event"
)

// Class is what the publisher does about an error.
type Class int

const (
	// Retry: the message may or may not be stored, or the broker is busy: send the same message
	// again after a backoff.
	Retry Class = iota
	// Reconnect: the broker can't be reached: pause the whole sink, not one object, and try again
	// after a backoff.
	Reconnect
	// Refused: the broker will never take this message (too large, refused by its schema): dead
	// letter.
	Refused
	// Stopped: the caller's context ended; nothing is known of the message.
	Stopped
)

// String is the class as a metric label.
func (c Class) String() string {
	return [...]string{"retry", "reconnect", "refused", "stopped"}[c]
}

// Error is an error with the class that a sink sorted it into.
type Error struct {
	Class Class
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ErrNoDeadLetter is returned by DeadLetter when the configuration names no place for refused
// messages.
var ErrNoDeadLetter = errors.New("no dead-letter destination configured")

// Classify sorts an error: as the sink said, Stopped for the caller's own context, else Retry.
// A sink sorts its client's errors in one function; nobody else sees a vendor's error code.
func Classify(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	if errors.Is(err, context.Canceled) {
		return Stopped
	}
	return Retry
}

// Recover is deferred around the work on one message: a panic there refuses the message, and no
// other one.
func Recover(err *error) {
	if recovered := recover(); recovered != nil {
		*err = &Error{Class: Refused, Err: event.NewPanicError(recovered)}
	}
}

// RecoverAnswer is deferred around the work on what a broker has sent: a panic there is an error of
// that call alone. Whether the broker did what it was asked for is not known.
func RecoverAnswer(err *error) {
	if recovered := recover(); recovered != nil {
		*err = &Error{Class: Retry, Err: event.NewPanicError(recovered)}
	}
}

// ErrTooLarge is the reason of a message that the broker would refuse, or has refused, for its
// size.
var ErrTooLarge = errors.New("message is too large")

// ErrNotSent is in the answer to a message that was not sent, so the answer is not about it.
var ErrNotSent = errors.New("not sent")

// ErrNoClaims is returned by Claim when the configuration names no place for large payloads.
var ErrNoClaims = errors.New("no place for large payloads configured")
