// Package publisher brings events to one sink: it keeps them in order per object while they are
// batched, retried, held back or given up, and tells whoever added them when they are settled.
//
// It takes in Items, from any number of listeners through Add, and hands their Messages to a
// sinks.Sink. An item is settled when the sink has acknowledged its message, or when the message
// was refused permanently and went to the dead letters. The item's Settler is told, once.
//
// # Ordering
//
// Every item belongs to a lane, the sink's unit of order: an object, or for example a Kafka
// partition. A lane is a FIFO in the order of the Add calls. At most one Publish call holds
// messages of a lane; with sinks.ByObject it holds the first one only. A message that is to be sent
// again stays at the head of its lane, so nothing passes it. Items of one lane are settled in their
// order, and Settle has returned before the next call for the lane starts. An item whose lane can't
// be told yet keeps all later ones of its object behind it.
//
// # Duplicates and loss
//
// A message is sent again until the sink answers that it is stored or will never be: at least once,
// with the same id. An item that is not settled when Run ends stays so: nobody is told, and a
// checkpoint behind it does not pass. What an earlier process has stored, as a sinks.Recaller finds
// after the start, is settled in its place and not sent.
//
// # Items
//
// An item goes through these states (state.go):
//
//	new ──Add──> queued ──────in a call──────> sending ──stored──> stored
//	               │ │  ▲                        │  │
//	               │ │  └────── tried <──retry───┘  └──refused──> refused
//	               │ │            (also in a call)                  │
//	               │ └──found by Recall──> recalled                 ├──> dead-lettered
//	               │                                                ├──> kept, in a file
//	               │                                                ├──> returned (Item.Return)
//	               └──too large──> refused                          └──> lost
//
// Stored, recalled, dead-lettered, kept, returned and lost items are settled, in their place in the
// lane.
// Detach makes what is queued, tried or refused pending: the adder's again, and not settled.
//
// # Detach
//
// An adder that ends has its items back by Detach. It waits for the calls of the sink that hold
// some of them; when it has waited for long enough, those calls are cancelled. What the sink has
// acknowledged is settled, also behind an item that is not. Whoever adds the rest later sends the
// same ids in other calls: the sink knows which of them it has sent without an answer.
//
// # Failures
//
// What the sink answers decides what happens (sinks.Classify):
//
//   - Retry delays the lane alone, exponentially with jitter. Other lanes go on.
//   - Reconnect pauses the whole sink with one backoff. After it one worker tries one message; its
//     answer ends the pause or starts a longer one.
//   - Refused sends the message to the dead letters; later messages of the lane go on behind it. A
//     dead letter that can't be stored either is tried again: nothing is dropped but where the
//     configuration says so.
//   - Stopped leaves the item as it is.
//
// A message that is too large, by a sink's own word before it is sent (sinks.Sizer), is made
// smaller in the ways that the configuration allows, and says so in its attributes; only what fits
// in none of them is refused.
//
// # Blocking and memory
//
// Add blocks while the bounds on items and bytes are reached, and until the sink is open. Adders
// are served in their order. One half of the capacity is reserved in equal parts for the settlers:
// a pipeline that is stuck does not take the part of another one. Items whose lane the sink can't
// tell hold at most a quarter of the capacity, and those for one topic or stream at most a
// sixteenth. Beyond that Add blocks for those who add such items, and for nobody else.
//
// Items form linked lists and come back to the adder with Settle, so an adder that uses them again
// makes the whole path free of allocations. Settle is called from the publisher's goroutines with
// no lock held. It should be quick, since its lane waits for it, and it must not wait for Add.
//
// # Start and stop
//
// New starts nothing. Run opens the sink, works until its context ends, closes the sink and returns
// when all goroutines have ended. For a clean stop call Drain before that context ends.
package publisher
