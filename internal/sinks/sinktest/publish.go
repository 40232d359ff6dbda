package sinktest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// open opens a new sink over the broker and closes it when the case ends.
func open(t *testing.T, b *Broker) sinks.Sink {
	t.Helper()
	sink := b.NewSink(t)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sink
}

// publish sends events as the publisher does: with the gate of the sink's Order, resending what is
// answered Retry or Reconnect until all are stored. Any other answer fails t.
func publish(t *testing.T, sink sinks.Sink, events ...*event.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(events) > 0 {
		batch, rest := nextCall(ctx, t, sink, events)
		sink.Publish(ctx, batch)
		unsent := unsent(t, sink.Order(), batch)
		if len(unsent) > 0 {
			select { // a resend without a pause would be a busy loop while the broker is unavailable
			case <-ctx.Done():
				t.Fatalf("%d messages not stored after a minute; the first: %v",
					len(unsent)+len(rest), batch[0].Err)
			case <-time.After(20 * time.Millisecond):
			}
		}
		events = append(unsent, rest...)
	}
}

// nextCall takes what may go into one Publish call, in order, and returns the rest. With ByObject
// that is one message of each lane, with ByLane the messages of the first lane.
func nextCall(
	ctx context.Context, t *testing.T, sink sinks.Sink, events []*event.Event,
) (batch []*sinks.Message, rest []*event.Event) {
	t.Helper()
	limits := sink.Limits()
	maxMessages, maxBytes := cmp.Or(limits.Messages, 512), cmp.Or(limits.Bytes, 900<<10)
	blocked := map[string]bool{} // lanes whose later messages have to wait for the next call
	first, size := "", 0
	for i, e := range events {
		lane := laneOf(ctx, t, sink, e)
		if i == 0 {
			first = lane
		}
		fits := len(batch) == 0 || len(batch) < maxMessages && size+len(e.Data) <= maxBytes
		if !fits || blocked[lane] || sink.Order() == sinks.ByLane && lane != first {
			blocked[lane] = true
			rest = append(rest, e)
			continue
		}
		blocked[lane] = sink.Order() == sinks.ByObject
		size += len(e.Data)
		batch = append(batch, &sinks.Message{Event: e})
	}
	return batch, rest
}

func laneOf(ctx context.Context, t *testing.T, sink sinks.Sink, e *event.Event) string {
	t.Helper()
	for {
		lane, err := sink.Lane(ctx, e)
		if err == nil {
			return lane
		}
		if class := sinks.Classify(err); class != sinks.Retry && class != sinks.Reconnect {
			t.Fatalf("lane of %s: %v (%s)", e.ID, err, class)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// unsent are the events to send again, in order. It fails t on an answer that the publisher would
// not resend, and, with ByLane, when the sink acknowledged a message behind one that it did not.
func unsent(t *testing.T, order sinks.Order, batch []*sinks.Message) (events []*event.Event) {
	t.Helper()
	for _, m := range batch {
		if m.Err == nil {
			if order == sinks.ByLane && len(events) > 0 {
				t.Fatalf("%s was acknowledged although %s before it on its lane was not",
					m.Event.ID, events[0].ID)
			}
			continue
		}
		if class := sinks.Classify(m.Err); class != sinks.Retry && class != sinks.Reconnect {
			t.Fatalf("publish %s: %v (%s), want stored, retry or reconnect", m.Event.ID, m.Err,
				class)
		}
		events = append(events, m.Event)
	}
	return events
}

// call is one Publish call with all of the events.
func call(ctx context.Context, sink sinks.Sink, events ...*event.Event) []*sinks.Message {
	batch := make([]*sinks.Message, len(events))
	for i, e := range events {
		batch[i] = &sinks.Message{Event: e}
	}
	sink.Publish(ctx, batch)
	return batch
}
