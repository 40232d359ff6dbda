package publisher_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// objects is one id for each of n objects.
func objects(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("object%d/1", i)
	}
	return ids
}

// Calls that fail together start one pause.
func TestOutageSinglePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.Bounds = sinks.Limits{Messages: 1, Concurrency: 8}
		begun := time.Now()
		sink.OnPublish = func(context.Context, []*sinks.Message) { time.Sleep(time.Millisecond) }
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if time.Since(begun) <= time.Millisecond {
				return testkit.Answer{Err: testkit.ErrUnreachable}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items(objects(8)...))
		p.awaitSettled(r, 8)
		// One pause of 50 to 100 ms, the probe, the others. Eight trips would have made it 6 s.
		if took := time.Since(begun); took > 110*time.Millisecond {
			t.Errorf("settled after %v, want one short pause", took)
		}
		if s := p.Status(); s.Retries != 8 {
			t.Errorf("%d retries counted, want 8", s.Retries)
		}
	})
}

// What waited for the broker has no delays of its own.
func TestOutageWithoutDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		begun := time.Now()
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if time.Now().Equal(begun) {
				return testkit.Answer{Err: testkit.ErrUnreachable}
			}
			return testkit.Answer{}
		}
		hour := publisher.Retry{Initial: time.Hour, Max: time.Hour}
		p := start(t, sink, publisher.Config{Retry: hour})
		p.add(r.items(objects(20)...))
		for r.count() == 0 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if r.count() != 20 {
			t.Errorf("%d of 20 items settled when the broker was back", r.count())
		}
	})
}

// A broker that accepts only probes is not hammered.
func TestOutageProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.Bounds.Concurrency = 1
		batches, large := 0, false
		sink.OnPublish = func(_ context.Context, batch []*sinks.Message) {
			if large = len(batch) > 1; large {
				batches++
			}
		}
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if large {
				return testkit.Answer{Err: testkit.ErrUnreachable}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: 100 * time.Millisecond, Max: time.Minute}})
		p.add(r.items(objects(5000)...))
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if batches > 80 {
			t.Errorf("%d batches in half an hour: the pauses did not grow", batches)
		}
		if batches < 30 {
			t.Errorf("%d batches in half an hour: it was not tried again", batches)
		}
	})
}

// A new outage starts with a short pause.
func TestOutageAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		var away atomic.Bool
		away.Store(true)
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if away.Load() {
				return testkit.Answer{Err: testkit.ErrUnreachable}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: 100 * time.Millisecond, Max: time.Hour}})
		p.add(r.items("a/1"))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		away.Store(false)
		p.drain()
		p.add(r.items("a/2")) // a regular call
		p.drain()

		away.Store(true)
		p.add(r.items("a/3"))
		synctest.Wait()
		away.Store(false)
		begun := time.Now()
		p.awaitSettled(r, 3)
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("the first pause of the second outage took %v", took)
		}
	})
}

// Dead letters wait for the broker too.
func TestOutageDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = func(*event.Event) testkit.Answer { return testkit.Answer{Err: testkit.ErrTooLarge} }
		begun, attempts := time.Now(), 0
		sink.OnDeadLetter = func(*event.Event) error {
			if time.Since(begun) < time.Minute {
				attempts++
				return testkit.ErrUnreachable
			}
			return nil
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: time.Second, Max: 10 * time.Second}})
		p.add(r.items(objects(20)...))
		p.awaitSettled(r, 20)
		if attempts > 16 {
			t.Errorf("%d attempts at dead letters in a minute of outage, want one per pause", attempts)
		}
		if len(sink.DeadLetters()) != 20 {
			t.Errorf("%d dead letters, want 20", len(sink.DeadLetters()))
		}
	})
}

// awaitSettled waits, without the hurry of a drain, until n items are settled.
func (p *running) awaitSettled(r *recorder, n int) {
	p.t.Helper()
	for range 1_000_000 {
		synctest.Wait()
		if r.count() >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	p.t.Fatalf("%d of %d items settled", r.count(), n)
}
