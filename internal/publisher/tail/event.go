package tail

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
)

// MaxPayload is how much of a payload is shown, in bytes.
const MaxPayload = 16 << 10

// Event is a copy of what was settled.
type Event struct {
	// Sink that settled it, and how: acknowledged, recalled, dead-letter, lost.
	Sink    string            `json:"sink"`
	Outcome publisher.Outcome `json:"outcome"`
	// Settled is when; Seconds how long after the bridge had observed the change.
	Settled time.Time `json:"settled"`
	Seconds float64   `json:"seconds"`
	// Attempts to publish it.
	Attempts int `json:"attempts"`
	// Bytes of the whole payload, before a smaller form took its place.
	Bytes int `json:"bytes"`

	ID        string `json:"id"`
	Type      string `json:"type"`
	Op        string `json:"op"`
	Informer  string `json:"informer"`
	Subject   string `json:"subject"`
	Resource  string `json:"resource"` // "deployments.apps"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	Manager   string `json:"manager,omitempty"`
	Initial   bool   `json:"initial,omitempty"`
	Inferred  bool   `json:"inferred,omitempty"`

	// Payload as text, where it was asked for; Truncated when it is not all of it.
	Payload   string `json:"payload,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// size is what the event costs while it waits.
func (e *Event) size() int {
	const fixed = 512
	return fixed + len(e.ID) + len(e.Subject) + len(e.Payload)
}

// copyOf copies what is shown of an item. The item's strings may share memory with the object,
// which must not be kept for them.
func (w *Watcher) copyOf(sink string, it *publisher.Item) Event {
	from, now := it.Message.Event, time.Now()
	e := Event{
		Sink: sink, Outcome: it.Outcome(), Settled: now, Attempts: it.Attempts(),
		Bytes: len(from.Data),
		ID:    strings.Clone(from.ID), Type: from.Type, Op: string(from.Op),
		Informer: from.Informer,
		Subject:  strings.Clone(from.Subject), Resource: qualified(from),
		Namespace: strings.Clone(from.Namespace), Name: strings.Clone(from.Name),
		Version: strings.Clone(from.ResourceVersion), Manager: strings.Clone(from.Manager),
		Initial: from.Initial, Inferred: from.Inferred,
	}
	if !from.Observed.IsZero() {
		e.Seconds = now.Sub(from.Observed).Seconds()
	}
	if w.payload {
		e.Payload, e.Truncated = beginning(from.Data)
	}
	return e
}

// qualified is "pods", "deployments.apps".
func qualified(e *event.Event) string {
	if e.Group == "" {
		return e.Resource
	}
	return e.Resource + "." + e.Group
}

// beginning copies as much of a payload as is shown, without half a character.
func beginning(data []byte) (text string, truncated bool) {
	if len(data) <= MaxPayload {
		return string(data), false
	}
	end := MaxPayload
	for end > 0 && !utf8.RuneStart(data[end]) {
		end--
	}
	return string(data[:end]), true
}
