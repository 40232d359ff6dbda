package sinks

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
)

// Sizer is a Sink that knows before it sends a message whether its broker takes it. The caller
// then makes the event smaller, in a way that its readers can see, instead of having it refused.
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
