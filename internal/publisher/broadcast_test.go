package publisher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// dividedSink is a sink whose destinations have three parts, where it knows them.
type dividedSink struct {
	*testkit.Session
	fault atomic.Pointer[sinks.Error] // why it can't; nil when it can
	asked atomic.Int64
}

func (s *dividedSink) Parts(context.Context, *event.Event) (int, error) {
	s.asked.Add(1)
	if fault := s.fault.Load(); fault != nil {
		return 0, fault
	}
	return 3, nil
}

// answer is what Parts gives.
type answer struct {
	parts int
	err   error
}

// parts calls Parts on a goroutine of its own.
func (p *running) parts(ctx context.Context) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		n, err := p.Parts(ctx, &event.Event{ID: "gap"})
		answers <- answer{n, err}
	}()
	synctest.Wait()
	return answers
}

func TestParts(t *testing.T) {
	for name, fault := range map[string]*sinks.Error{
		"a missing topic": testkit.ErrBusy, "an outage": testkit.ErrUnreachable,
	} {
		t.Run(name+" is waited for", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &dividedSink{Session: newSink(t, sinks.ByLane)}
				sink.fault.Store(fault)
				p := start(t, sink, publisher.Config{})
				answers := p.parts(t.Context())
				time.Sleep(10 * time.Minute)
				isOutage := fault == testkit.ErrUnreachable
				if s := p.Status(); s.Unrouted != 1 || s.Connected == isOutage || s.Blocked == "" != isOutage {
					t.Errorf("meanwhile: %+v", s)
				}
				if n := sink.asked.Load(); n < 20 || n > 60 {
					t.Errorf("the sink was asked %d times in ten minutes", n)
				}
				select {
				case got := <-answers:
					t.Fatalf("it does not wait: %+v", got)
				default:
				}
				sink.fault.Store(nil)
				if got := <-answers; got != (answer{3, nil}) {
					t.Errorf("%+v, want 3 parts", got)
				}
				if s := p.Status(); s.Unrouted != 0 || !s.Connected || s.Blocked != "" {
					t.Errorf("afterwards: %+v", s)
				}
			})
		})
	}
	t.Run("an event that is refused has no copies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := &dividedSink{Session: newSink(t, sinks.ByLane)}
			sink.fault.Store(testkit.ErrTooLarge)
			p := start(t, sink, publisher.Config{})
			if got := <-p.parts(t.Context()); got != (answer{}) {
				t.Errorf("%+v, want no parts", got)
			}
		})
	})
	t.Run("its context ends the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := &dividedSink{Session: newSink(t, sinks.ByLane)}
			sink.fault.Store(testkit.ErrBusy)
			p := start(t, sink, publisher.Config{})
			why := errors.New("the informer ends")
			ctx, cancel := context.WithCancelCause(t.Context())
			answers := p.parts(ctx)
			cancel(why)
			synctest.Wait()
			if got := <-answers; got != (answer{0, why}) {
				t.Errorf("%+v, want the cause", got)
			}
		})
	})
	t.Run("a sink that is not open is not asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := &dividedSink{Session: newSink(t, sinks.ByLane)}
			sink.Set(testkit.Unreachable)
			p := start(t, sink, publisher.Config{})
			answers := p.parts(t.Context())
			time.Sleep(10 * time.Minute)
			if s := p.Status(); sink.asked.Load() > 0 || s.Unrouted > 0 {
				t.Errorf("it was asked %d times, %+v", sink.asked.Load(), s)
			}
			sink.Set(testkit.Healthy)
			<-p.Opened()
			synctest.Wait()
			select {
			case got := <-answers:
				if got != (answer{3, nil}) {
					t.Errorf("%+v, want 3 parts", got)
				}
			default:
				t.Error("it still waits when the sink is open")
			}
		})
	})
}
