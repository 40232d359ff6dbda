package sinktest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// soon is how fast a call must end that has no reason to wait any longer.
const soon = 15 * time.Second

func refusesTooLarge(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	small, large, last := NewEvent("web", 1, h.TooLarge/2), NewEvent("web", 2,
		h.TooLarge), NewEvent("api", 1, 300)
	if sink.Order() == sinks.ByObject { // then no call holds two messages of one object
		large = NewEvent("job", 2, h.TooLarge)
	}
	var refused []error
	for _, events := range callsOf(t, sink, small, large, last) {
		for _, m := range call(t.Context(), sink, events...) {
			if m.Event == large {
				refused = append(refused, m.Err)
			} else if m.Err != nil {
				t.Errorf("%s in a call with one too large: %v", m.Event.ID, m.Err)
			}
		}
	}
	if len(refused) != 1 || refused[0] == nil || sinks.Classify(refused[0]) != sinks.Refused {
		t.Errorf("%d bytes: answered %v, want refused", h.TooLarge, refused)
	}
	wantExactly(t, b, small, last)
}

// callsOf splits events into calls as the sink's Order asks: by lane, or all in one call where they
// are of distinct objects.
func callsOf(t *testing.T, sink sinks.Sink, events ...*event.Event) [][]*event.Event {
	t.Helper()
	if sink.Order() == sinks.ByObject {
		return [][]*event.Event{events}
	}
	var order []string
	perLane := map[string][]*event.Event{}
	for _, e := range events {
		lane := laneOf(t.Context(), t, sink, e)
		if perLane[lane] == nil {
			order = append(order, lane)
		}
		perLane[lane] = append(perLane[lane], e)
	}
	calls := make([][]*event.Event, len(order))
	for i, lane := range order {
		calls[i] = perLane[lane]
	}
	return calls
}

func survivesAnOutage(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	web := names("web", 10)
	publish(t, sink, history(1, 3, web...)...)

	b.Break()
	began := time.Now()
	lost := call(t.Context(), sink, NewEvent("web-0", 4, 300))[0]
	if class := sinks.Classify(lost.Err); lost.Err == nil || class != sinks.Retry &&
		class != sinks.Reconnect {
		t.Errorf("publish without a broker answered %v, want retry or reconnect", lost.Err)
	}
	if took := time.Since(began); took > soon {
		t.Errorf("the answer took %v", took)
	}
	b.Restore()

	done := make(chan struct{})
	go func() { // a second outage, in the middle of a stream of calls
		defer close(done)
		time.Sleep(50 * time.Millisecond)
		b.Break()
		time.Sleep(200 * time.Millisecond)
		b.Restore()
	}()
	publish(t, sink, history(4, 60, web...)...)
	<-done
	publish(t, sink, history(61, 62, web...)...)
	wantHistory(t, b, history(1, 62, web...))
}

func opensOnceTheBrokerIsBack(t *testing.T, h Harness) {
	b := h.Start(t)
	b.Break()
	sink := b.NewSink(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := sink.Open(ctx)
	if err == nil {
		t.Fatal("open without a broker succeeded")
	}
	if class := sinks.Classify(err); class == sinks.Refused {
		t.Errorf("open without a broker: %v (%s), want an error that may heal", err, class)
	}
	b.Restore()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if err = sink.Open(t.Context()); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("open a minute after the broker came back: %v", err)
		}
	}
	defer func() {
		if err := sink.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	publish(t, sink, NewEvent("web", 1, 300))
	wantHistory(t, b, history(1, 1, "web"))
}

func cancelEndsPublish(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	publish(t, sink, NewEvent("web", 1, 300))

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	acknowledged := cancelledCall(cancelled, t, sink, history(2, 2, names("web", 5)...))

	b.Break()
	later, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	acknowledged = append(acknowledged, cancelledCall(later, t, sink,
		history(3, 3, names("web", 5)...))...)
	b.Restore()

	publish(t, sink, NewEvent("last", 1, 300)) // the sink still works
	wantHistory(t, b, append(acknowledged, NewEvent("web", 1, 300), NewEvent("last", 1, 300)))
}

// cancelledCall publishes one lane under a context that ends and returns what was acknowledged
// nevertheless.
func cancelledCall(
	ctx context.Context, t *testing.T, sink sinks.Sink, events []*event.Event,
) (acknowledged []*event.Event) {
	t.Helper()
	began := time.Now()
	for _, events := range callsOf(t, sink, events...) {
		for _, m := range call(ctx, sink, events...) {
			if m.Err == nil {
				acknowledged = append(acknowledged, m.Event)
			} else if sinks.Classify(m.Err) == sinks.Refused {
				t.Errorf("%s: refused because the context ended: %v", m.Event.ID, m.Err)
			}
		}
	}
	if took := time.Since(began); took > soon {
		t.Errorf("publish returned %v after its context ended", took)
	}
	return acknowledged
}

// storesOnceAfterACancelledCall sends what cancelled calls have left open again as the publisher
// does once it was taken back (publisher.Detach): with the same ids, behind events of others.
func storesOnceAfterACancelledCall(t *testing.T, h Harness) {
	const rounds, step = 20, 100 * time.Microsecond
	b := h.Start(t)
	sink := open(t, b)
	var all []*event.Event
	for round := range rounds {
		mine := history(round+1, round+1, names("web", 6)...)
		others := history(round+1, round+1, names("api", 6)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round)*step)
		var unanswered []*event.Event
		for _, events := range callsOf(t, sink, mine...) {
			for _, m := range call(ctx, sink, events...) {
				if m.Err != nil {
					unanswered = append(unanswered, m.Event)
				}
			}
		}
		cancel()
		publish(t, sink, slices.Concat(others, unanswered)...)
		all = slices.Concat(all, mine, others)
	}
	wantExactly(t, b, all...)
}
