package read

import (
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

// Event is one message, as an event and as what carried it.
type Event struct {
	event.Event
	// Place of the message in what is in order: the stream's sequence, or the offset in its
	// partition.
	Place uint64
	// Lane is the unit of order: "" for a stream, "topic/partition" for Kafka.
	Lane string
	// At is when the broker stored it; for Kafka when the producer says that it sent it, to the
	// millisecond.
	At time.Time

	// Of NATS.
	NATSSubject string
	MessageID   string // Nats-Msg-Id
	// Of Kafka.
	Topic      string
	Partition  int32
	Partitions int // of the topic
	Key        string
}

// Attribute gives an extension attribute as text, "" for none.
func (e *Event) Attribute(name string) string {
	value, ok := e.Extensions()[name]
	if !ok {
		return ""
	}
	return fmt.Sprint(value)
}

// Op is the end of the type: "added", "updated", "deleted", "synced", "gap".
func (e *Event) Op() string { return e.Type()[strings.LastIndexByte(e.Type(), '.')+1:] }

// AboutObject reports whether the event is about an object, rather than an informer.
func (e *Event) AboutObject() bool { return strings.HasPrefix(e.Type(), "dev.kubebridge.resource.") }

// GroupResource is "deployments.apps", or "pods" for the core group.
func (e *Event) GroupResource() string {
	group, _, found := strings.Cut(e.Attribute("apiversion"), "/")
	if !found {
		return e.Attribute("resource")
	}
	return e.Attribute("resource") + "." + group
}
