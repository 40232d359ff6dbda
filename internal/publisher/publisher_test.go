package publisher_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

func wantOrder(t *testing.T, sink *testkit.Session, object string, ids ...string) {
	t.Helper()
	if got := storedOf(sink, object); got != strings.Join(ids, " ") {
		t.Errorf("%s was stored as %q, want %q", object, got, ids)
	}
}

func eachOrder(t *testing.T, test func(t *testing.T, order sinks.Order)) {
	for name, order := range map[string]sinks.Order{"by object": sinks.ByObject, "by lane": sinks.ByLane} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, order) })
		})
	}
}

// Items arrive in order and are settled.
func TestOrder(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "b/1", "a/2", "a/3", "b/2"))
		p.drain()
		time.Sleep(time.Second)
		wantOrder(t, sink, "a", "a/1", "a/2", "a/3")
		wantOrder(t, sink, "b", "b/1", "b/2")
		if r.count() != 5 {
			t.Errorf("%d items settled, want 5", r.count())
		}
		if s := p.Status(); s.QueuedItems != 0 || s.QueuedBytes != 0 || s.Published != 5 || s.OldestSeconds != 0 || !s.Connected {
			t.Errorf("status after the drain: %+v", s)
		}
	})
}

// Ready objects share a call.
func TestSharedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.Bounds = sinks.Limits{Messages: 3, Concurrency: 1}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "b/1", "c/1", "d/1", "e/1"))
		p.drain()
		if calls := sink.Calls(); len(calls) != 2 || calls[0].Messages != 3 || calls[1].Messages != 2 {
			t.Errorf("calls %v, want one with 3 messages and one with 2", calls)
		}
	})
}

// A call holds no more bytes than the limit.
func TestCallBytes(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		sink.Bounds = sinks.Limits{Bytes: 250}
		p := start(t, sink, publisher.Config{})
		items := r.items(append(numbered("a", 10), "b/1", "c/1", "d/1", "e/1")...)
		for i, it := range items {
			it.Message.Event.Data = make([]byte, 50+i*10)
		}
		items[3].Message.Event.Data = make([]byte, 300) // alone
		p.add(items)
		p.drain()
		wantOrder(t, sink, "a", numbered("a", 10)...)
	})
}

// A message that fails is sent again before the next.
func TestRetryOrder(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		attempts := 0
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if e.ID != "a/2" {
				return testkit.Answer{}
			}
			if attempts++; attempts <= 5 {
				return testkit.Answer{Err: testkit.ErrBusy, Stored: attempts%2 == 0}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2", "a/3"))
		time.Sleep(time.Minute)
		wantOrder(t, sink, "a", "a/1", "a/2", "a/3")
		if s := p.Status(); attempts != 6 || s.Retries != 5 || s.LastError != "busy" || s.Published != 3 {
			t.Errorf("%d attempts, status %+v", attempts, s)
		}
		if got := r.ids(); got != "a/1 a/2 a/3" {
			t.Errorf("settled %q", got)
		}
	})
}

// A call that the sink cancels by itself is tried again.
func TestRetryAfterGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		attempts := 0
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if attempts++; attempts <= 3 {
				return testkit.Answer{Err: context.Canceled} // not ours
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1"))
		p.awaitSettled(r, 1)
		if s := p.Status(); s.Retries != 3 {
			t.Errorf("%d retries counted, want 3", s.Retries)
		}
	})
}

// A lane that succeeded starts over with its delays.
func TestDelayReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		failures := map[string]int{"a/1": 14, "a/2": 1}
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if failures[e.ID]--; failures[e.ID] >= 0 {
				return testkit.Answer{Err: testkit.ErrBusy}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: time.Millisecond, Max: time.Hour}})
		p.add(r.items("a/1", "a/2"))
		for r.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		begun := time.Now()
		p.awaitSettled(r, 2)
		if took := time.Since(begun); took > 2*time.Millisecond {
			t.Errorf("the first failure of a/2 delayed it by %v, want up to 1ms", took)
		}
	})
}

// Settled items can be added again.
func TestItemReuse(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink := newSink(t, order)
		sink.OnMessage = refuse("a/2")
		p := start(t, sink, publisher.Config{})
		var items []*publisher.Item
		for range 3 {
			r := newRecorder(t)
			if items == nil {
				items = r.items("a/1", "a/2", "a/3")
			}
			for _, it := range items {
				it.Settler = r
			}
			p.add(items)
			p.drain()
			if got := r.ids(); got != "a/1 a/2 a/3" {
				t.Errorf("settled %q", got)
			}
		}
		if len(sink.DeadLetters()) != 3 {
			t.Errorf("dead letters %q, want a/2 three times", sink.DeadLetters())
		}
		wantOrder(t, sink, "a", "a/1", "a/3", "a/1", "a/3", "a/1", "a/3")
	})
}

// A lane that fails delays no other.
func TestFailingLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if e.Name == "stuck" {
				return testkit.Answer{Err: testkit.ErrBusy}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{})
		for i := range 100 {
			begun := time.Now()
			p.add(r.items(numbered("fine", (i+1)*10)[i*10:]...))
			if i > 0 {
				p.add(r.items(numbered("stuck", i)[i-1]))
			}
			synctest.Wait()
			if got := r.count(); got != (i+1)*10 || time.Since(begun) != 0 {
				t.Fatalf("round %d: %d items settled after %v", i, got, time.Since(begun))
			}
			time.Sleep(time.Second)
		}
		if s := p.Status(); s.QueuedItems != 99 || s.OldestSeconds != 99 {
			t.Errorf("status %+v, want 99 items of the stuck lane, the oldest 99 s old", s)
		}
	})
}

// A call that hangs keeps only its worker.
func TestHangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.Bounds.Concurrency = 2
		hangs := 0
		sink.OnPublish = func(ctx context.Context, batch []*sinks.Message) {
			if batch[0].Event.Name == "stuck" && hangs < 2 {
				hangs++
				<-ctx.Done()
			}
		}
		p := start(t, sink, publisher.Config{PublishTimeout: 10 * time.Second})
		p.add(r.items("stuck/1"))
		synctest.Wait()
		p.add(r.items("fine/1", "fine/2"))
		synctest.Wait()
		if got := r.ids(); got != "fine/1 fine/2" {
			t.Errorf("settled %q while one call hangs", got)
		}
		if s := p.Status(); s.InFlight != 1 {
			t.Errorf("%d messages in flight, want 1", s.InFlight)
		}
		begun := time.Now()
		p.drain()
		if took := time.Since(begun); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("the call that hung twice was over after %v, want 20 s and two short backoffs", took)
		}
	})
}

// An outage pauses the whole sink once.
func TestOutagePause(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		sink.Bounds = sinks.Limits{Messages: 10, Concurrency: 4}
		begun := time.Now()
		const outage = 5 * time.Minute
		sink.OnPublish = func(context.Context, []*sinks.Message) { time.Sleep(time.Millisecond) }
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if time.Since(begun) < outage {
				return testkit.Answer{Err: testkit.ErrUnreachable}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: 100 * time.Millisecond, Max: 10 * time.Second}})
		var ids []string
		for object := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
			ids = append(ids, numbered(object, 40)...)
		}
		p.add(r.items(ids...))
		time.Sleep(time.Minute)
		if s := p.Status(); s.Connected || s.LastError != testkit.ErrUnreachable.Error() || s.QueuedItems != len(ids) {
			t.Errorf("status during the outage: %+v", s)
		}
		if over := p.Status().LastErrorOver; !over.IsZero() {
			t.Errorf("the outage is over at %v", over)
		}
		time.Sleep(outage)
		if s := p.Status(); s.LastErrorOver.Before(begun.Add(outage)) || s.LastErrorOver.After(begun.Add(outage+time.Minute)) {
			t.Errorf("an outage of %v is over %v after its begin", outage, s.LastErrorOver.Sub(begun))
		}
		if r.count() != len(ids) {
			t.Errorf("%d of %d items settled after the outage", r.count(), len(ids))
		}
		probes := 0
		for _, call := range sink.Calls() {
			if since := call.At.Sub(begun); since > time.Millisecond && since < outage {
				if probes++; call.Messages != 1 {
					t.Errorf("a probe with %d messages after %v", call.Messages, since)
				}
			}
		}
		// 100 ms doubling to 10 s, each at least half: no more than 7 of the short ones and one per
		// 5 s.
		if probes < 30 || probes > 68 {
			t.Errorf("%d probes in %v, want between 30 and 68", probes, outage)
		}
		if !p.Status().Connected {
			t.Error("not connected after the outage")
		}
	})
}

// A refused message goes to the dead letters, and the lane continues.
func TestDeadLetter(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		sink.OnMessage = refuse("a/2", "a/3")
		failures := 0
		sink.OnDeadLetter = func(e *event.Event) error {
			if failures++; failures <= 3 {
				return []error{testkit.ErrBusy, testkit.ErrUnreachable, context.Canceled}[failures-1]
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2", "a/3", "a/4", "b/1"))
		p.drain()
		wantOrder(t, sink, "a", "a/1", "a/4")
		if got := strings.Join(sink.DeadLetters(), " "); got != "a/2 a/3" ||
			!errors.Is(sink.Reasons()[0], testkit.ErrTooLarge) {
			t.Errorf("dead letters %q, because of %v", got, sink.Reasons())
		}
		if s := p.Status(); s.DeadLetters != 2 || s.Published != 3 || r.count() != 5 {
			t.Errorf("status %+v, %d settled", s, r.count())
		}
	})
}

// A refused message without a place for dead letters is settled too.
func TestDeadLetterWithoutPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = refuse("a/1")
		sink.OnDeadLetter = func(*event.Event) error { return sinks.ErrNoDeadLetter }
		var log bytes.Buffer
		p := start(t, sink, publisher.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		p.add(r.items("a/1", "a/2"))
		p.drain()
		p.stop()
		wantOrder(t, sink, "a", "a/2")
		for _, part := range []string{"level=ERROR", "sink=test", "id=a/1", "subject=a", `reason="too large"`, "size=7", "attempts=1"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log does not say %s:\n%s", part, log.String())
			}
		}
		if s := p.Status(); s.DeadLetters != 1 || s.Retries != 0 {
			t.Errorf("status %+v, want one dead letter and no retry", s)
		}
	})
}

// A dead letter is the last trace of a change: it waits until its place takes it, and holds up its
// own object only.
func TestDeadLetterRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = refuse("a/1")
		var healed atomic.Bool
		sink.OnDeadLetter = func(*event.Event) error {
			if healed.Load() {
				return nil
			}
			return testkit.ErrTooLarge
		}
		registry := prometheus.NewRegistry()
		p := start(t, sink, publisher.Config{Registerer: registry})
		p.add(r.items("a/1", "a/2", "b/1"))
		time.Sleep(time.Hour)
		wantOrder(t, sink, "a")
		wantOrder(t, sink, "b", "b/1")
		if _, delayed := series(t, registry, "delayed_lanes"); delayed != 1 {
			t.Errorf("delayed_lanes = %v, want 1", delayed)
		}
		if s := p.Status(); s.DeadLetters != 0 || s.Retries == 0 || r.count() != 1 {
			t.Errorf("status %+v, %d settled: the dead letter was dropped", s, r.count())
		}
		healed.Store(true)
		p.drain()
		wantOrder(t, sink, "a", "a/2")
		if got := strings.Join(sink.DeadLetters(), " "); got != "a/1" || r.count() != 3 {
			t.Errorf("dead letters %q, %d settled", got, r.count())
		}
	})
}

func refuse(ids ...string) func(e *event.Event) testkit.Answer {
	return func(e *event.Event) testkit.Answer {
		if slices.Contains(ids, e.ID) {
			return testkit.Answer{Err: testkit.ErrTooLarge}
		}
		return testkit.Answer{}
	}
}

// The rate limit is exact.
func TestRateLimit(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		registry := prometheus.NewRegistry()
		cfg := publisher.Config{Registerer: registry}
		cfg.RateLimit.PerSecond, cfg.RateLimit.Burst = 10, 5
		p := start(t, sink, cfg)
		synctest.Wait()
		begun := time.Now()
		var ids []string
		for _, object := range []string{"a", "b", "c", "d", "e"} {
			ids = append(ids, numbered(object, 11)...)
		}
		p.add(r.items(ids...))
		p.drain()
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("55 messages at 10/s with 5 at once took %v, want 5s", took)
		}
		if _, waited := series(t, registry, "rate_limited_seconds_total"); waited < 5 {
			t.Errorf("the metric reports %vs of waiting, want 5s at least", waited)
		}
		sent := 0
		for _, call := range sink.Calls() {
			sent += call.Messages
			if allowed := 5 + int(call.At.Sub(begun).Seconds()*10+0.001); sent > allowed {
				t.Errorf("%d messages were sent after %v, the rate allows %d", sent, call.At.Sub(begun), allowed)
			}
		}
	})
}

// The rate limit counts bytes too.
func TestRateLimitBytes(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		cfg := publisher.Config{}
		cfg.RateLimit.BytesPerSecond, cfg.RateLimit.BurstBytes = 1000, 500
		p := start(t, sink, cfg)
		synctest.Wait()
		begun := time.Now()
		items := r.items(append(numbered("a", 5), numbered("b", 5)...)...)
		for _, it := range items {
			it.Message.Event.Data = make([]byte, 250)
		}
		items[9].Message.Event.Data = make([]byte, 750) // larger than the burst: passes alone
		p.add(items)
		p.drain()
		if took := time.Since(begun); took != 2500*time.Millisecond {
			t.Errorf("3000 bytes at 1000/s with 500 at once took %v, want 2.5s", took)
		}
	})
}

// What is not answered at the end stays unsettled.
func TestUnansweredAtEnd(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		sink.OnPublish = func(ctx context.Context, batch []*sinks.Message) {
			if batch[0].Event.ID == "a/2" {
				<-ctx.Done()
			}
		}
		sink.Bounds.Messages = 1
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2", "a/3"))
		synctest.Wait()
		p.stop()
		if got := r.ids(); got != "a/1" {
			t.Errorf("settled %q, want a/1", got)
		}
		if !sink.Closed() {
			t.Error("the sink was not closed")
		}
		if err := p.Add(t.Context(), r.items("b/1")); !errors.Is(err, publisher.ErrStopped) {
			t.Errorf("Add after the end = %v", err)
		}
		if err := p.Drain(t.Context()); !errors.Is(err, publisher.ErrStopped) {
			t.Errorf("Drain after the end = %v", err)
		}
	})
}

// The end of Run ends a blocked Add.
func TestBlockedAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = func(*event.Event) testkit.Answer { return testkit.Answer{Err: testkit.ErrBusy} }
		p := start(t, sink, publisher.Config{MaxItems: 1})
		added := make(chan error)
		go func() { added <- p.Add(t.Context(), r.items("a/1", "a/2")) }()
		synctest.Wait()
		p.stop()
		if err := <-added; !errors.Is(err, publisher.ErrStopped) {
			t.Errorf("Add = %v, want ErrStopped", err)
		}
	})
}

// Drain ends delays once, and reports what is left.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		begun := time.Now()
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if e.Name == "never" || time.Since(begun) < time.Second {
				return testkit.Answer{Err: testkit.ErrBusy}
			}
			return testkit.Answer{}
		}
		hour := publisher.Retry{Initial: 1000 * time.Hour, Max: 1000 * time.Hour}
		p := start(t, sink, publisher.Config{Retry: hour})
		p.add(r.items("a/1", "never/1"))
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := p.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 items") {
			t.Errorf("Drain = %v, want one item left at the deadline", err)
		}
		if got := r.ids(); got != "a/1" {
			t.Errorf("settled %q, want a/1", got)
		}
	})
}

// Drain ends the pause of an outage.
func TestDrainInOutage(t *testing.T) {
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
		hour := publisher.Retry{Initial: time.Hour, Max: time.Hour}
		p := start(t, sink, publisher.Config{Retry: hour})
		p.add(r.items("a/1", "b/1"))
		synctest.Wait()
		away.Store(false)
		begun := time.Now()
		p.drain()
		if took := time.Since(begun); took != 0 {
			t.Errorf("drained after %v, want at once", took)
		}
	})
}
