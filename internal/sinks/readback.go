package sinks

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
)

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
