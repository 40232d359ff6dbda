package publisher

import "fmt"

// itemState is how far an item is.
//
//	new ──Add──> queued ──────in a call──────> sending ──stored──> stored
//	               │ │  ▲                        │  │
//	               │ │  └────── tried <──retry───┘  └──refused──> refused
//	               │ │            (also in a call)                  │
//	               │ └──found by Recall──> recalled <──found later──┤
//	               │                                                ├──> dead-lettered
//	               │                                                ├──> kept, in a file
//	               │                                                ├──> returned (Item.Return)
//	               └──too large (also tried)──> refused             └──> lost
//
// Stored, recalled, dead-lettered, kept, returned and lost items are settled, in their place in the
// lane. Detach makes what is queued, tried or refused pending: the adder's again, and not settled.
type itemState uint8

const (
	itemNew     itemState = iota // the adder's
	itemQueued                   // in a lane, or waits for one
	itemSending                  // in a call of the sink
	itemTried                    // was in a call, and has no answer: it may be stored
	itemRefused                  // by the sink; to go to the dead letters

	// Settled: it leaves its lane as soon as nothing is before it.

	itemStored       // the sink has it
	itemRecalled     // the sink had it from an earlier process
	itemDeadLettered // it is in the dead letters
	itemKept         // in a file, since the dead letters did not take it
	itemReturned     // the adder's, who has it elsewhere
	itemLost         // nothing took it

	itemPending // taken back by Detach: the adder's again, and not settled
)

// itemEvent is what happens to an item.
type itemEvent uint8

const (
	onAdd itemEvent = iota
	onRecall
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

// next is the state behind an event. An event that can't happen in a state is a mistake in this
// package.
func (s itemState) next(e itemEvent) itemState {
	switch {
	case s == itemNew && e == onAdd:
		return itemQueued
	case (s == itemQueued || s == itemRefused) && e == onRecall:
		return itemRecalled
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

// settled reports whether nothing more is to be done for the item but to call its settler.
func (s itemState) settled() bool { return s >= itemStored && s <= itemLost }

// on moves the item to its next state.
func (it *Item) on(e itemEvent) { it.state = it.state.next(e) }
