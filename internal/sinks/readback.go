package sinks

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
)

// ReadBacker is a Sink that can read back what it has stored. After a crash its broker holds
// messages that no checkpoint knows of yet; they are found there and not sent again. A sink that
// can't read back (core NATS, stdout) is simply no Recaller.
//
// The publisher asks for a Position every few hundred milliseconds and lets the checkpoint save one
// behind which everything lies that was sent and is not in the checkpoint too. After a start it
// hands the saved one to Recall, once, and settles at once what is added with an id that was found.
type ReadBacker interface {
	// Position is the end of what is stored, as far as the sink knows: whatever Publish or
	// DeadLetter is called with after Position was called will be stored at or behind it. It may be
	// too early, at the price of a longer tail to read, and never too late. It does no I/O and is
	// called often. The bytes are the sink's own, and another process of a later version may read
	// them: they say what they are. The same place gives the same bytes, or the state database is
	// written for nothing. It is called between Open and Close, concurrently with everything else.
	Position() []byte
	// ReadBack reports, by event.Event.MessageID, the messages that are stored at or behind a
	// position that Position gave to an earlier process, dead letters included. It is called after
	// Open and before the first Lane or Publish, by one goroutine, with nil when nothing was saved:
	// then only what the sink needs for its next Position is to be done. Its errors are classified
	// as those of Open are: after Retry and Reconnect it is called again from the start, and
	// reporting an id twice does no harm. What can't be read any more (deleted by retention, a
	// topic or stream that was recreated) is no error: there is nothing to recall. Of a place that
	// the sink learns of only later, from an event that goes there, Lane reports what it holds
	// before it returns; found may be called until Close. What such a place holds that can't be
	// read by then, the sink itself does not store again.
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
	// FindEarlierRun takes a look, at the last few messages, where events of the kind of about go,
	// an event about an informer; ours reports whether a message is one of those. It is called
	// between Open and Close, concurrently with everything else, and never makes anything. That
	// nothing is found does not mean that nothing is there.
	FindEarlierRun(ctx context.Context, about *event.Event, ours func(Trace) bool) (bool, error)
}
