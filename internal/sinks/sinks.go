// Package sinks holds the contract of every sink, and the classes that its errors are sorted into:
// each package below it that is a sink keeps it, and sinktest checks that. Such a package has all
// that is particular to its sink: the keys of its configuration with their documentation, defaults
// and checks (Section), and the Sink that these make. What surrounds a sink is in Env. A sink
// imports neither config nor app.
package sinks

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
)

// Message is one event handed to a sink, and the sink's answer. Both belong to the sink during the
// call of Publish and not a moment longer: the caller uses them again.
type Message struct {
	Event *event.Event
	// Err is the answer: nil when the broker has acknowledged the message, else an error that
	// Classify can sort. It is nil when Publish is called, so a sink that leaves it has
	// acknowledged.
	Err error
	// Exists is set with the event that ends a list, else nil. It reports whether an object of the
	// collection that the event is about exists, as far as the informer has read. A sink that keeps
	// the present state deletes what it holds of others before it stores the event.
	Exists func(namespace, name string) (bool, error)
}

// Order says what unit of order a sink keeps by itself.
type Order int

const (
	// ByObject: messages within one Publish call are independent, each may be stored before the
	// other. The caller has at most one message of an object (one Lane) in flight, over all
	// concurrent calls.
	ByObject Order = iota
	// ByLane: a Publish call holds messages of one lane only and stores them in the order given.
	// When one of them is not acknowledged and not refused, no later one of the call is
	// acknowledged. The caller has at most one call per lane in flight.
	ByLane
)

// Limits are what one Publish call may hold, and how many calls may run at once. Zero values mean
// the documented default.
type Limits struct {
	Messages    int // per call; default 512
	Bytes       int // payload bytes per call; default 900 KiB
	Concurrency int // calls at once; default 4
}

// Sink publishes events to one broker. All methods may be called concurrently once Open has
// returned, under the rule of its Order. A Sink never re-orders and never drops: what it can't do
// it says in Message.Err.
type Sink interface {
	// Open connects, checks the destination (and makes it, where the configuration says so) and
	// returns when Publish may be called. An error that Classify calls Retry or Reconnect may heal:
	// the caller calls Open again, after a while. Other errors are for the operator and say what to
	// do.
	Open(ctx context.Context) error
	// Order is constant between Open and Close.
	Order() Order
	// Limits is constant between Open and Close.
	Limits() Limits
	// Lane is the unit of order that the event belongs to: with ByObject the object, with ByLane
	// for example a Kafka partition ("topic/3"). It blocks at most for one look-up of metadata.
	// With a context that has ended it answers at once: from memory, or with a Stopped error. The
	// event's lane does not change while any event of its object is in flight.
	Lane(ctx context.Context, e *event.Event) (string, error)
	// Publish sends the messages and waits until each has its answer in Err. A nil Err promises
	// that the broker holds the message as durably as the sink's configuration asks. The sink
	// resends ambiguous messages by itself only where that can't reorder or duplicate (an
	// idempotent producer); otherwise it answers Retry and the caller sends the same message again,
	// with the same ids. When ctx ends, Publish returns soon, with ctx's error on what has no
	// answer.
	Publish(ctx context.Context, batch []*Message)
	// DeadLetter sends a message that Publish refused to the place the configuration names for
	// such, with the reason and the number of attempts. nil promises the same as for Publish. Where
	// the configuration names no place it returns ErrNoDeadLetter.
	DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error
	// Close ends all goroutines and connections. Publish must not be running.
	Close() error
}

// Outliner is a ReadBacker whose positions may become large.
type Outliner interface {
	// Outline is a position that says less, in a few bytes for each topic: ReadBack takes it too.
	// nil when there is none.
	Outline(position []byte) []byte
}

// Blocker is a Sink that knows that messages can't be stored now while no call of Publish is there
// to say so, or has returned.
type Blocker interface {
	// Blocked is why: of the class Reconnect when its broker can't be reached, else what somebody
	// has to act upon, although the broker is there. nil when there is nothing of that. It returns
	// at once and may be called at any time.
	Blocked() error
}

// Inspector is a Sink that looks at its destinations again while it runs: an administrator may
// change them at any time.
type Inspector interface {
	// Inspect takes over what was changed, such as limits that were raised, and makes again what is
	// missing where the configuration says so. It returns what was lost since the last call. It is
	// called every few seconds between Open and Close, by one goroutine, concurrently with
	// everything else.
	Inspect(ctx context.Context) []Loss
}

// Fail gives every message of a batch that has no answer yet the same one.
func Fail(batch []*Message, err error) {
	for _, m := range batch {
		m.Err = err
	}
}

// Broadcaster is a Sink with destinations of several parts that are read one without the other,
// such as the partitions of a Kafka topic. An event about all objects of an informer is for the
// readers of each part: it is sent once for each (event.Event.Copy). A sink that is read as a whole
// is simply no Broadcaster.
type Broadcaster interface {
	// Parts is how many parts the destination of an event has. It blocks and fails as Lane does.
	Parts(ctx context.Context, e *event.Event) (int, error)
}

// Sizer is a Sink that knows before it sends a message whether its broker takes it. The caller
// then makes the event smaller, in a way that its readers can see, instead of having it refused.
// When the broker refuses a message for its size that Fits has passed, the sink lowers its limit
// and answers Retry: the caller asks Fits again. Such a sink has a SizeLimit for each destination.
type Sizer interface {
	// Fits is nil when the broker takes the event, in the size in which it would be encoded; else
	// an error that is ErrTooLarge and has both sizes. It blocks on nothing, and costs next to
	// nothing for an event that is far below the limit.
	Fits(e *event.Event) error
}

// ClaimChecker is a Sink that can keep a payload where messages have no limit of size.
type ClaimChecker interface {
	// Claim stores the event's payload and returns where, as a URI for the attribute dataref. The
	// same event is stored under the same name, so that a repeated call leaves one copy. nil
	// promises the same as for Publish. Where the configuration names no place it returns
	// ErrNoClaims.
	Claim(ctx context.Context, e *event.Event) (dataref string, err error)
}
