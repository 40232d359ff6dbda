package publisher_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A sink that stores nothing of an object is blocked after ten seconds, with the last cause, until
// it stores that.
func TestStalled(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		var full atomic.Bool
		full.Store(true)
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if full.Load() && strings.HasPrefix(e.ID, "a") {
				return testkit.Answer{Err: errors.New("the stream is full")}
			}
			return testkit.Answer{Stored: true}
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "b/1"))
		time.Sleep(9 * time.Second)
		if s := p.Status(); s.Blocked != "" {
			t.Errorf("after 9 s it is blocked: %s", s.Blocked)
		}
		time.Sleep(3 * time.Second)
		if s := p.Status(); !strings.Contains(s.Blocked, "the stream is full") || !s.Connected {
			t.Errorf("after 12 s blocked is %q, connected %v", s.Blocked, s.Connected)
		}
		full.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := p.Status(); s.Blocked != "" {
			t.Errorf("everything is stored, and it is blocked: %s", s.Blocked)
		}
	})
}
