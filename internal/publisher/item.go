package publisher

import (
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
	Seq     uint64        // the settler's own mark; the publisher doesn't look at it
	// Hold is the item's when it is settled, for the Settler to release; nil for nothing.
	Hold *Hold
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
	// pendingSince is when the place of dead letters first did not take it.
	pendingSince time.Time
	// full is the event as it was added, when a smaller one takes its place in Message.
	full *event.Event
}

// event is the item's event as it was added.
func (it *Item) event() *event.Event {
	if it.full != nil {
		return it.full
	}
	return it.Message.Event
}

// refuse marks it for the dead letters.
func (it *Item) refuse(why error) {
	it.on(onRefuse)
	it.refused = why
}

// restore gives the adder its event back.
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
	it.on(onAdd)
	it.Message.Err = nil
	it.size = overhead + len(it.Message.Event.Data)
}

// payload is how many bytes the item counts against the bound of one Publish call.
func (it *Item) payload() int { return it.size - overhead }

func sizeOf(items []*Item) (bytes int) {
	for _, it := range items {
		bytes += it.size
	}
	return bytes
}
