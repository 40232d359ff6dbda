package testkit

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Broker is where the events of one sink go: a log in memory that outlives the processes that send
// to it. Connect gives a process its sink. A Broker does what its Script and its Condition say, and
// with a Seed what happens by chance. It fails the test when a sink is not used as sinks.Sink says.
type Broker struct {
	Name string
	// Unit and Bounds are the order and the limits of its sinks.
	Unit   sinks.Order
	Bounds sinks.Limits
	// Seed decides how long an answer takes, and whether what has no answer is stored; 0 for never.
	Seed uint64
	// Faulty has messages refused, and answers of single messages fail, as Seed decides.
	Faulty bool
	Script
	// Seen is how many records Next leaves out, as they were looked at before. The test owns it.
	Seen int

	t         testing.TB
	mu        sync.Mutex
	log       []*Record     // guarded by mu
	letters   []*Record     // guarded by mu: dead letters in their own order
	condition Condition     // guarded by mu
	changed   chan struct{} // guarded by mu: closed and replaced when the condition changes
}

// Script is what a test has a broker do. A nil function does nothing. The functions are called
// without locks.
type Script struct {
	OnOpen    func(attempt int) error
	OnLane    func(*event.Event) error
	OnPublish func(context.Context, []*sinks.Message) // before the messages are answered
	// OnMessage answers one message. The default is an acknowledgement.
	OnMessage    func(*event.Event) Answer
	OnDeadLetter func(*event.Event) error
}

// Answer is what a broker says to a message. With an Err, a Stored message has arrived, and its
// acknowledgement is lost.
type Answer struct {
	Err    error
	Stored bool
}

// Record is one message that a broker took.
type Record struct {
	event.Event
	Process int // that sent it
	At      time.Time
	Acked   bool  // the sender got the answer; settles what was refused too
	Dead    bool  // in the dead letters, or dropped because there are none
	Again   bool  // sent again by the same process, which got no answer
	Reason  error // why it is a dead letter
}

// Condition is what is wrong with a broker as a whole.
type Condition string

// Conditions.
const (
	Healthy     Condition = "healthy"
	Unreachable Condition = "unreachable"
	Hung        Condition = "hung" // takes messages and does not answer
	Slow        Condition = "slow"
)

// Errors that a Broker answers with, of one class each.
var (
	ErrBusy        = &sinks.Error{Class: sinks.Retry, Err: errors.New("busy")}
	ErrUnreachable = &sinks.Error{Class: sinks.Reconnect, Err: errors.New("no route to broker")}
	ErrTooLarge    = &sinks.Error{Class: sinks.Refused, Err: errors.New("too large")}
)

// NewBroker is a healthy broker without limits.
func NewBroker(t testing.TB, name string, order sinks.Order) *Broker {
	return &Broker{t: t, Name: name, Unit: order, condition: Healthy, changed: make(chan struct{})}
}

// Set sets the condition. What hangs is answered when that changes.
func (b *Broker) Set(c Condition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.condition = c
	close(b.changed)
	b.changed = make(chan struct{})
}

// Condition is the condition, and what is closed when that changes.
func (b *Broker) Condition() (Condition, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.condition, b.changed
}

// Records is the log so far. What was refused is at the place where it was refused.
func (b *Broker) Records() []*Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clip(b.log)
}

// Next is what was added to the log since the last call.
func (b *Broker) Next() []*Record {
	all := b.Records()
	next := all[b.Seen:]
	b.Seen = len(all)
	return next
}

// Stored are the ids of what is stored of an object, in order.
func (b *Broker) Stored(object string) (ids []string) {
	for _, rec := range b.Records() {
		if rec.Name == object && !rec.Dead {
			ids = append(ids, rec.ID)
		}
	}
	return ids
}

// DeadLetters are the ids of the dead letters, in the order in which they came.
func (b *Broker) DeadLetters() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rec := range b.letters {
		ids = append(ids, rec.ID)
	}
	return ids
}

// Reasons are those of the dead letters.
func (b *Broker) Reasons() (reasons []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rec := range b.letters {
		reasons = append(reasons, rec.Reason)
	}
	return reasons
}

// chance reports whether something happens, one time in n. It depends on the seed and on what it is
// about and on nothing else, so that a run can be repeated however goroutines are scheduled.
func (b *Broker) chance(n uint64, about ...any) bool { return b.Seed != 0 && b.below(n, about...) == 0 }

// below is a number that is smaller than n, as chance makes it.
func (b *Broker) below(n uint64, about ...any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, b.Seed, b.Name, about)
	return h.Sum64() >> 7 % n
}
