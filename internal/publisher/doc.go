// Package publisher brings events to one sink. It keeps them in order per object while they are
// batched, retried, held back or given up, and reports to their adders when they are settled.
//
// In come Items, from any number of listeners (Add). Out go their Messages, to a sinks.Sink. Each
// item's Settler is called once when the item is settled: the sink has acknowledged the message, or
// it was refused permanently and went to the dead letters. item.go has the states of an item.
//
// Order: every item belongs to a lane, the sink's unit of order: an object, or a Kafka partition. A
// lane is a FIFO in the order of the Add calls. At most one Publish call holds messages of a lane;
// with sinks.ByObject it holds the first one only. A message that is to be sent again stays at the
// head of its lane. Items of one lane are settled in their order, and Settle has returned before
// the next call for the lane starts. An item whose lane is not known yet keeps all later ones of
// its object behind it.
//
// Duplicates and loss: a message is sent again, with the same id, until the sink answers that it is
// stored or will never be. An item that is not settled when Run ends stays so, and a checkpoint
// does not pass it. An item that an earlier process has stored, as the sink's ReadBack finds after
// the start, is settled in its place and not sent. answers.go says what follows from an answer.
//
// Blocking and memory: Add blocks while the bounds on items and bytes are reached, and until the
// sink is open. Adders are served in their order. One half of the capacity is reserved in equal
// parts for the settlers: a stuck informer does not take the part of another one. Items whose lane
// the sink doesn't know hold at most a quarter of the capacity, those for one topic or stream a
// sixteenth. Items form linked lists and come back with Settle, so an adder that uses them again
// makes the path free of allocations. Settle is called with no lock held. It must not wait for Add.
//
// Start and stop: New starts nothing. Run opens the sink, works until its context ends, closes the
// sink and returns when all goroutines have ended. For a clean stop call Drain before that context
// ends. An adder that ends takes its items back by Detach.
package publisher
