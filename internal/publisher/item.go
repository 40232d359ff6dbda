package publisher

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Settler is called when items are settled. All items of a call have this Settler; the slice is the
// publisher's and valid during the call only. Calls come from several goroutines. Implementations
// must be comparable (a pointer).
type Settler interface{ Settle(items []*Item) }

// Item is one event in flight to the sink. From Add until Settle it is the publisher's; afterwards
// the adder may use it again.
type Item struct {
	Message sinks.Message // Message.Event is set by the adder
	Settler Settler       // called once, when the item is settled
	Seq     uint64        // for the settler; the publisher doesn't read it
	// Hold belongs to the item when it is settled, for the Settler to release; nil for nothing.
	Hold *PositionHold
	// Return settles the item where the sink refuses it (Returned): the adder has it elsewhere, so
	// it goes neither to the dead letters nor into a file. Set by the adder.
	Return bool

	// Owned by the publisher between Add and Settle.

	lane         string // name of its lane
	next         *Item  // behind it in its lane; guarded by Publisher.mu
	older, newer *Item  // among all that is queued; guarded by Publisher.mu
	added        time.Time
	size         int // what it counts against the bound on bytes

	// Owned by Add until the item has a lane, then by the worker that has the lane.

	state    itemState
	attempts int   // Publish calls that held it
	refused  error // why it goes to the dead letters
	// failures counts how often the sink did not take it while the broker answered. failingSince is
	// when that happened first, or, of a refused item, when the place of dead letters first did not
	// take it. An outage of the broker resets failingSince.
	failures     int
	failingSince time.Time
	// full is the event as it was added, when a smaller one replaces it in Message.
	full *event.Event
	// large is set when the sink has refused the item for its size, without knowing the limit.
	large *sizeRefusal
}

// sizeRefusal is the payload that a sink has refused last: it takes at most a smaller one.
type sizeRefusal struct {
	size int
	why  error
}

// event returns the event as it was added.
func (it *Item) event() *event.Event {
	if it.full != nil {
		return it.full
	}
	return it.Message.Event
}

// refuse marks the item for the dead letters.
func (it *Item) refuse(why error) {
	it.apply(onRefuse)
	it.refused, it.failingSince = why, time.Time{}
}

// fail records an error that is about the item, and not about the whole broker. It returns why the
// item is given up; nil while it is to be sent again.
func (it *Item) fail(err error, limit Retry) error {
	now := time.Now()
	if it.failures++; it.failingSince.IsZero() {
		it.failingSince = now
	}
	age := now.Sub(it.failingSince)
	isOld := limit.MaxAge > 0 && age >= limit.MaxAge
	if !isOld && (limit.MaxAttempts == 0 || it.failures < limit.MaxAttempts) {
		return nil
	}
	return fmt.Errorf("given up after %d attempts in %v: %w", it.failures,
		age.Round(time.Millisecond), err)
}

// restore puts the adder's event back into the message.
func (it *Item) restore() {
	if it.full != nil {
		it.Message.Event, it.full = it.full, nil
	}
}

// overhead is what an item costs besides its payload: Item, Event and the attributes' text, rounded
// up.
const overhead = 768

// prepare makes a new or settled item the publisher's.
func (it *Item) prepare(now time.Time) {
	*it = Item{
		Message: it.Message, Settler: it.Settler, Seq: it.Seq, Return: it.Return, added: now,
	}
	it.apply(onAdd)
	it.Message.Err = nil
	it.size = overhead + len(it.Message.Event.Data)
}

// payload returns the bytes that count against the bound of one Publish call.
func (it *Item) payload() int { return it.size - overhead }

func sizeOf(items []*Item) (bytes int) {
	for _, it := range items {
		bytes += it.size
	}
	return bytes
}

// Outcome is how an item was settled.
type Outcome string

// The outcomes of settled items.
const (
	Acknowledged Outcome = "acknowledged" // the sink has it
	ReadBack     Outcome = "recalled"     // the sink had it from an earlier process
	DeadLettered Outcome = "dead-letter"  // the sink refused it; it is in the dead letters
	// the sink refused it, and so did the place of dead letters, or there is none; it lies in the
	// state directory
	Kept Outcome = "kept"
	// the sink refused it, and the adder, who asked for that, has it back
	Returned Outcome = "returned"
	// the sink refused it, there is no place for dead letters, and nothing keeps it, or no more
	Lost Outcome = "lost"
)

// Outcome returns how the item was settled. It is valid from then until the item is added again.
func (it *Item) Outcome() Outcome {
	switch it.state {
	case itemLost:
		return Lost
	case itemReturned:
		return Returned
	case itemKept:
		return Kept
	case itemDeadLettered:
		return DeadLettered
	case itemReadBack:
		return ReadBack
	default:
		return Acknowledged
	}
}

// Refused returns why the sink refused the item; nil for one that it did not refuse. It is valid as
// Outcome is.
func (it *Item) Refused() error { return it.refused }

// Attempts returns in how many calls of the sink the item was, none for one that was read back. It
// is valid as Outcome is.
func (it *Item) Attempts() int { return it.attempts }

// itemState is how far an item is.
//
//	new ──Add──> queued ──────in a call──────> sending ──stored──> stored
//	               │ │  ▲                        │  │
//	               │ │  └────── tried <──retry───┘  └──refused──> refused
//	               │ │            (also in a call)                  │
//	               │ └────found in log──> read back <──found later──┤
//	               │                                                ├──> dead-lettered
//	               │                                                ├──> kept, in a file
//	               │                                                ├──> returned (Item.Return)
//	               └──too large (also tried)──> refused             └──> lost
//
// Stored, read back, dead-lettered, kept, returned and lost items are settled, in the order of the
// lane. Detach makes queued, tried and refused items pending: the adder's again, and not settled.
type itemState uint8

const (
	itemNew     itemState = iota // the adder's
	itemQueued                   // in a lane, or waits for one
	itemSending                  // in a call of the sink
	itemTried                    // was in a call, and has no answer: it may be stored
	itemRefused                  // by the sink; to go to the dead letters

	// Settled: it leaves its lane as soon as nothing is before it.

	itemStored       // the sink has it
	itemReadBack     // the sink had it from an earlier process
	itemDeadLettered // it is in the dead letters
	itemKept         // in a file, since the dead letters did not take it
	itemReturned     // the adder's, who has it elsewhere
	itemLost         // nothing took it

	itemPending // taken back by Detach: the adder's again, and not settled
)

type itemEvent uint8

const (
	onAdd itemEvent = iota
	onReadBack
	onSend
	onStore
	onFail // no answer, or one that it is to be sent again
	onRefuse
	onDeadLetter
	onKeep
	onReturn
	onLose
	onDetach
)

// after returns the state after an event. It panics for an event that can't happen in the state:
// that is a mistake in this package.
func (s itemState) after(e itemEvent) itemState {
	switch {
	case s == itemNew && e == onAdd:
		return itemQueued
	case (s == itemQueued || s == itemRefused) && e == onReadBack:
		return itemReadBack
	case (s == itemQueued || s == itemTried) && e == onSend:
		return itemSending
	case s == itemSending && e == onStore:
		return itemStored
	case s == itemSending && e == onFail:
		return itemTried
	case (s == itemQueued || s == itemSending || s == itemTried) && e == onRefuse:
		return itemRefused
	case s == itemRefused && e == onDeadLetter:
		return itemDeadLettered
	case s == itemRefused && e == onKeep:
		return itemKept
	case s == itemRefused && e == onReturn:
		return itemReturned
	case s == itemRefused && e == onLose:
		return itemLost
	case (s == itemQueued || s == itemTried || s == itemRefused) && e == onDetach:
		return itemPending
	}
	panic(fmt.Sprintf("publisher: event %d in state %d of an item", e, s))
}

// settled reports whether nothing is left to do for the item but to call its settler.
func (s itemState) settled() bool { return s >= itemStored && s <= itemLost }

// apply moves the item to its next state.
func (it *Item) apply(e itemEvent) { it.state = it.state.after(e) }
