package sinks

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
)

// Trace is what a broker's message says of the event that it holds.
type Trace struct {
	MessageID    string // event.Event.MessageID
	PartitionKey string
}

// Rememberer is a Sink that can look whether its broker holds events of an earlier run, of which
// the state directory may know nothing: it was lost.
type Rememberer interface {
	// Remembers takes a look, at the last few messages, where events of the kind of about go, an
	// event about an informer; ours reports whether a message is one of those. It is called between
	// Open and Close, concurrently with everything else, and never makes anything. That nothing is
	// found does not mean that nothing is there.
	Remembers(ctx context.Context, about *event.Event, ours func(Trace) bool) (bool, error)
}
