// Package sinks holds the contract of every sink, and the classes that its errors are sorted into:
// each package below it that is a sink keeps it, and sinktest checks that. Such a package has all
// that is particular to its sink: the keys of its configuration with their documentation, defaults
// and checks (Section), and the Sink that these make. What surrounds a sink is in Env. A sink
// imports neither config nor app.
package sinks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// ReadBacker is a Sink that can read back what it has stored. After a crash its broker holds
// messages that no checkpoint contains. They are found there and not sent again. A sink that can't
// read back (core NATS, stdout) does not implement it.
//
// The publisher calls Position every few hundred milliseconds. The checkpoint saves a position that
// lies before every sent event which the checkpoint does not contain. After a start the publisher
// calls ReadBack once with the saved position, and settles added events whose ids it found.
type ReadBacker interface {
	// Position is the end of what is stored, as far as the sink knows: whatever Publish or
	// DeadLetter is called with after Position was called will be stored at or behind it. It may be
	// too early, at the price of a longer tail to read, and never too late. It does no I/O and is
	// called often, between Open and Close, concurrently with everything else.
	//
	// The bytes are the sink's own, and name their form: another process of a later version may
	// read them. The same position has the same bytes, or the state database is written for
	// nothing.
	Position() []byte
	// ReadBack reports, by event.Event.MessageID, the messages that are stored at or behind a
	// position that Position gave to an earlier process, dead letters included. It is called after
	// Open and before the first Lane or Publish, by one goroutine. from is nil when nothing was
	// saved: ReadBack then does only what the sink needs for its next Position. Its errors are
	// classified as those of Open are. After Retry and Reconnect it is called again from the start,
	// so an id may be reported twice. Messages that are gone (deleted by retention, a topic or
	// stream that was recreated) are no error.
	//
	// A sink may learn of a topic or stream only later, from an event that goes there. Lane then
	// reports what it holds before it returns, so found may be called until Close. The sink itself
	// does not store again what it could not read there by then.
	ReadBack(ctx context.Context, from []byte, found func(messageID string)) error
}

// Trace is what a broker's message says of the event that it holds.
type Trace struct {
	MessageID    string // event.Event.MessageID
	PartitionKey string
}

// EarlierRunFinder is a Sink that can look whether its broker holds events of an earlier run, of
// which the state directory may know nothing: it was lost.
type EarlierRunFinder interface {
	// FindEarlierRun reports whether ours is true for one of the last few messages where events of
	// the kind of about go, an event about an informer. It makes nothing. It is called between Open
	// and Close, concurrently with everything else. false does not mean that nothing is there.
	FindEarlierRun(ctx context.Context, about *event.Event, ours func(Trace) bool) (bool, error)
}

// Reasons of a Loss.
const (
	// Recreated: the topic or stream was deleted, and one of its name made.
	Recreated = "recreated"
	// Purged: messages were deleted, and the topic or stream is the same.
	Purged = "purged"
	// Truncated: the end is before what was acknowledged, after an unclean election or a restore.
	Truncated = "truncated"
)

// Unverified is the reason of a Loss of which nothing is known yet. A sink that holds the present
// state is sent all objects again, in the round that it names, and leaves out those that it holds.
const Unverified = "unverified"

// Reasons are the reasons of losses.
var Reasons = []string{Recreated, Purged, Truncated}

// Loss is a topic, a partition or a stream that does not hold any more what it has acknowledged.
type Loss struct {
	Destination string // "k8s.prod.pods/3", "K8S"
	Reason      string
	// Before is the end of what was acknowledged, Now the end of what is there: offsets or
	// sequences.
	Before, Now uint64
	Round       int64 // with Unverified
}

func (l Loss) String() string {
	return fmt.Sprintf("%s was %s: it had acknowledged up to %d, and ends at %d", l.Destination,
		l.Reason, l.Before, l.Now)
}

// Losses collects losses until Inspect returns them. Its methods may be called concurrently.
type Losses struct {
	mu   sync.Mutex
	list []Loss // guarded by mu
}

// Add adds a loss.
func (l *Losses) Add(loss Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, loss)
}

// Take returns the losses since the last call.
func (l *Losses) Take() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// A sink that holds the present state compares it with each list, and deletes what does not exist.
// How it walks through what it holds is its own; what is here is the same for all of them.

// Sweeps has how far sweeps have come, by an id: a call has a deadline, and the next one continues.
// The zero value is empty.
type Sweeps[T any] struct {
	mu   sync.Mutex
	byID map[string]T // guarded by mu
}

// Get returns the progress of a sweep; the zero value for one that has not begun.
func (s *Sweeps[T]) Get(id string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// Set saves the progress of a sweep.
func (s *Sweeps[T]) Set(id string, progress T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]T{}
	}
	s.byID[id] = progress
}

// Done forgets a sweep that has ended.
func (s *Sweeps[T]) Done(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// Round is one in which a sink is sent all objects again because it has asked for that, with
// Unverified. The zero value is none.
type Round struct{ number int64 }

// RoundTime is how often at most a sink asks because of a sign that others have changed what it
// holds, and how long a round takes at most.
const RoundTime = 10 * time.Minute

// NewRound returns a round that begins at a time.
func NewRound(now time.Time) Round { return Round{now.UnixMilli()} }

// Number is for Loss.Round.
func (r Round) Number() int64 { return r.number }

// Has reports whether an event is an object of the round.
func (r Round) Has(e *event.Event) bool {
	return r.number != 0 && e.Op == event.Synced && e.CompactionKey == "" &&
		strings.Contains(e.ID, "/sync/"+strconv.FormatInt(r.number, 10))
}

// CurrentInformers returns the informers that feed the sink now; nil when they are not known.
func (e *Env) CurrentInformers() []string {
	if e.Informers == nil {
		return nil
	}
	return e.Informers()
}

// OtherInformer reports whether what an informer has stored is left alone by the sweep for the end
// of a list: the informer is another one that feeds the sink. informers are those that do; nil when
// they are not known.
func (m *Message) OtherInformer(informer string, informers []string) bool {
	return informer != m.Event.Informer &&
		(informers == nil || slices.Contains(informers, informer))
}

// Owners has which sinks of a process publish to which streams. A stream stores each Nats-Msg-Id
// once, and the id names the informer and the event of a message, not the sink: of two sinks that
// get events of one informer, each would lose what the other has stored. The configuration is
// checked for that by the names in it. It can't see that two names are of one server; Open can, by
// the stream's name and time of creation.
type Owners struct {
	mu   sync.Mutex
	last uint64        // guarded by mu: the newest number
	list []streamOwner // guarded by mu, in the order of arrival
}

// Owner is a sink that publishes to streams.
type Owner struct {
	Name string
	// Informers returns the sink's current informers; nil: not known.
	Informers func() []string
}

type streamOwner struct {
	stream  string
	created time.Time // with the name distinguishes the stream from all others
	owner   *Owner
	number  uint64
}

// Claim adds a sink that is about to publish to a stream. When another sink was there before it
// and gets events of the same informer, Claim adds nothing and returns both names.
func (o *Owners) Claim(stream string, created time.Time, by *Owner) (other, informer string) {
	if o == nil || by.Informers == nil {
		return "", ""
	}
	before, number := o.register(stream, created, by)
	for _, other := range before {
		if other.Name == by.Name { // the same sink, whose place this one takes
			continue
		}
		if informer := common(other.Informers(), by.Informers()); informer != "" {
			o.remove(func(in streamOwner) bool { return in.number == number })
			return other.Name, informer
		}
	}
	return "", ""
}

// register returns the sinks that publish to the stream already.
func (o *Owners) register(
	stream string, created time.Time, by *Owner,
) (before []*Owner, number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, in := range o.list {
		if in.stream != stream || !in.created.Equal(created) {
			continue
		}
		if in.owner == by {
			number = in.number // it tries again
		} else {
			before = append(before, in.owner)
		}
	}
	if number == 0 {
		o.last++
		number = o.last
		o.list = append(o.list, streamOwner{stream, created, by, number})
	}
	return before, number
}

// Release removes a sink that was closed.
func (o *Owners) Release(by *Owner) {
	if o != nil {
		o.remove(func(in streamOwner) bool { return in.owner == by })
	}
}

func (o *Owners) remove(which func(streamOwner) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, which)
}

// common returns a name that is in both lists, "" for none.
func common(a, b []string) string {
	if i := slices.IndexFunc(a, func(name string) bool { return slices.Contains(b, name) }); i >= 0 {
		return a[i]
	}
	return ""
}
