package sinks

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

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

// SizeLimit is the largest message that a destination takes: as the broker's settings say, or as a
// refusal has shown. An administrator may change it at any time. So a sink looks it up again when
// the broker refuses a message that fits, and from time to time while messages do not fit. The
// methods may be called concurrently, and on nil: then no limit is known.
type SizeLimit struct {
	most     atomic.Int64 // 0: none is known
	exceeded atomic.Bool  // something did not fit since the limit was last raised
	// inferred is when a refusal has set the limit, in Unix nanoseconds; 0 when it was read.
	inferred atomic.Int64
}

// inferredFor is how long a limit holds that only a refusal has shown. The next refusal shows it
// again, and costs a request and no event.
const inferredFor = 5 * time.Second

// NewSizeLimit returns a limit in bytes; 0 for none that is known.
func NewSizeLimit(most int) *SizeLimit {
	l := new(SizeLimit)
	l.most.Store(int64(most))
	return l
}

// Load returns the limit in bytes, 0 when none is known.
func (l *SizeLimit) Load() int {
	if l == nil {
		return 0
	}
	return int(l.most.Load())
}

// Exceed records that a message does not fit.
func (l *SizeLimit) Exceed() {
	if l != nil && !l.exceeded.Load() {
		l.exceeded.Store(true)
	}
}

// Refuse is called when the broker has refused a message of a size that fits. It looks the limit
// up again. Where that fails, or the limit is above the size, the size shows the limit. Refuse
// reports whether the limit is lower now, so that the caller can try a smaller form.
func (l *SizeLimit) Refuse(size int, look func() (int, error)) bool {
	if l == nil {
		return false
	}
	if before := l.Load(); before > 0 && size > before {
		return false
	}
	if most, err := look(); err == nil && most > 0 && most < size {
		l.most.Store(int64(most))
		l.inferred.Store(0)
	} else {
		l.most.Store(int64(size - 1))
		l.inferred.Store(time.Now().UnixNano())
	}
	l.exceeded.Store(true)
	return true
}

// Refresh looks the limit up again if messages have exceeded it, and reports whether it is higher
// now. A limit that only a refusal has shown is dropped after inferredFor.
func (l *SizeLimit) Refresh(look func() (int, error)) (raised bool) {
	if !l.exceeded.Load() {
		return false
	}
	most, err := look()
	since := l.inferred.Load()
	if since == 0 && err != nil || since != 0 && time.Since(time.Unix(0, since)) < inferredFor {
		return false
	}
	before := l.Load()
	l.most.Store(int64(most))
	l.inferred.Store(0)
	if most == 0 || most > before {
		l.exceeded.Store(false)
		return true
	}
	return false
}

// DeadLetter sends an event with the attributes deadletterreason and deadletterattempts, and with
// to, the place where the event should have gone. When the letter is refused for its size, it goes
// without its payload, with truncated=true and originalsize in bytes. Where the attributes are too
// large, they are cut in the end.
func DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int, to event.Attribute,
	send func(context.Context, *event.Event) error,
) error {
	letter := *e // an event does not change once it was handed on
	letter.Extensions = append(slices.Clip(slices.Clone(e.Extensions)),
		event.Attribute{Name: "deadletterreason", Value: oneLine(reason)},
		event.Attribute{Name: "deadletterattempts", Value: strconv.Itoa(attempts)}, to)
	err := send(ctx, &letter)
	if !isRefused(err) {
		return err
	}
	letter.Extensions = append(letter.Extensions,
		event.Attribute{Name: "truncated", Value: "true"},
		event.Attribute{Name: "originalsize", Value: strconv.Itoa(len(e.Data))})
	letter.Data = nil
	if err = send(ctx, &letter); !isRefused(err) {
		return err
	}
	return send(ctx, stub(&letter))
}

func isRefused(err error) bool { return err != nil && Classify(err) == Refused }

// maxReason bounds the reason in bytes, so that it never makes a dead letter too large.
const maxReason = 1024

// oneLine gives an error's text as the value of an attribute: CloudEvents strings hold no control
// characters.
func oneLine(err error) string {
	if err == nil {
		return "unknown"
	}
	words := strings.FieldsFunc(strings.ToValidUTF8(err.Error(), "?"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
	text := strings.Join(words, " ")
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// stub is a letter without its payload and with every attribute cut to a length that any broker
// takes.
func stub(letter *event.Event) *event.Event {
	stub := *letter
	stub.Data = nil
	for _, text := range []*string{
		&stub.ID, &stub.Source, &stub.Type, &stub.Subject, &stub.PartitionKey, &stub.Sequence,
		&stub.APIVersion, &stub.Kind, &stub.Resource,
		&stub.Namespace, &stub.Name, &stub.UID, &stub.ResourceVersion, &stub.Previous, &stub.Changed,
		&stub.TimeSource, &stub.Manager, &stub.ManagerSubresource, &stub.ManagerOperation,
		&stub.LastManager, &stub.Cause, &stub.Group, &stub.Version, &stub.Informer,
	} {
		*text = cut(*text)
	}
	stub.Extensions = slices.Clone(letter.Extensions)
	for i := range stub.Extensions {
		stub.Extensions[i].Value = cut(stub.Extensions[i].Value)
	}
	return &stub
}

// cut keeps the beginning of a text, in whole characters.
func cut(text string) string {
	const longest = 256 // longer than any name in Kubernetes
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "")
}
