package sinks

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
)

// Broadcaster is a Sink with destinations of several parts that are read one without the other,
// such as the partitions of a Kafka topic. An event about all objects of an informer is for the
// readers of each part: it is sent once for each (event.Event.Copy). A sink that is read as a whole
// is simply no Broadcaster.
type Broadcaster interface {
	// Parts is how many parts the destination of an event has. It blocks and fails as Lane does.
	Parts(ctx context.Context, e *event.Event) (int, error)
}
