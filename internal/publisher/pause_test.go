package publisher_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A paused sink is sent nothing until it is resumed.
func TestPausedSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1"))
		p.drain()
		p.Pause()
		p.add(r.items("a/2", "a/3", "b/1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := p.Status(); r.count() != 1 || !s.Paused || !s.Connected {
			t.Errorf("while it is paused: settled %s, status %+v", r.ids(), s)
		}
		p.Resume()
		p.drain()
		if r.count() != 4 || storedOf(sink, "a") != "a/1 a/2 a/3" {
			t.Errorf("settled %s; a is %s", r.ids(), storedOf(sink, "a"))
		}
	})
}

// A resume in an outage does not hammer the broker: its backoff continues.
func TestPauseDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		calls := 0
		sink.OnMessage = func(*event.Event) testkit.Answer { calls++; return testkit.Answer{Err: testkit.ErrUnreachable} }
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: time.Hour, Max: time.Hour}})
		p.add(r.items("a/1"))
		synctest.Wait()
		p.Pause()
		p.Resume()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if calls != 1 || p.Status().Connected {
			t.Errorf("%d calls, status %+v", calls, p.Status())
		}
	})
}

// A patient publisher also waits for the operator.
func TestPatientPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnOpen = func(attempt int) error {
			if attempt < 5 {
				return errBadAuth
			}
			return nil
		}
		p := start(t, sink, publisher.Config{Patient: true})
		synctest.Wait()
		if s := p.Status(); s.Connected || s.LastError != errBadAuth.Error() {
			t.Errorf("status %+v", s)
		}
		p.add(r.items("a/1"))
		p.drain()
	})
}
