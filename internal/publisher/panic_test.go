package publisher_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestPanic(t *testing.T) {
	t.Run("an event that could not be made is a dead letter, and the rest continues", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink, registry := newSink(t, sinks.ByObject), prometheus.NewRegistry()
			p, r := start(t, sink, publisher.Config{Registerer: registry}), newRecorder(t)
			items := r.items("a/1", "poison/1", "a/2", "b/1")
			items[1].Message.Event.Err = event.NewPanicError(errors.New("a bug"))
			p.add(items)
			p.drain()
			if !slices.Equal(sink.DeadLetters(), []string{"poison/1"}) ||
				sink.Reasons()[0].Error() != "panic: *errors.errorString" {
				t.Errorf("dead letters %v, %v", sink.DeadLetters(), sink.Reasons())
			}
			if storedOf(sink, "a") != "a/1 a/2" || storedOf(sink, "b") != "b/1" || storedOf(sink, "poison") != "" {
				t.Errorf("stored %v and %v", sink.Stored("a"), sink.Stored("b"))
			}
			if got := items[1].Outcome(); got != publisher.DeadLettered {
				t.Errorf("outcome %s", got)
			}
			if n := testkit.Metric(t, registry, "bridge_publisher_panics_total"); n != 1 {
				t.Errorf("counted %v", n)
			}
		})
	})
	for name, test := range map[string]struct {
		script func(sink *testkit.Session, poison func(*event.Event))
		want   publisher.Outcome
		dead   []string
	}{
		"lane": {func(sink *testkit.Session, poison func(*event.Event)) {
			sink.OnLane = func(e *event.Event) error { poison(e); return nil }
		}, publisher.DeadLettered, []string{"poison/1"}},
		"message": {func(sink *testkit.Session, poison func(*event.Event)) {
			sink.OnMessage = func(e *event.Event) testkit.Answer {
				var err error
				func() {
					defer sinks.Recover(&err)
					poison(e)
				}()
				return testkit.Answer{Err: err}
			}
		}, publisher.DeadLettered, []string{"poison/1"}},
		"message, and its dead letter": {func(sink *testkit.Session, poison func(*event.Event)) {
			sink.OnLane = func(e *event.Event) error { poison(e); return nil }
			sink.OnDeadLetter = func(e *event.Event) error { poison(e); return nil }
		}, publisher.Kept, nil},
	} {
		t.Run("a panic at a "+name+" stops no other object", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink, registry := newSink(t, sinks.ByObject), prometheus.NewRegistry()
				test.script(sink, func(e *event.Event) {
					if strings.HasPrefix(e.ID, "poison") {
						panic("a bug")
					}
				})
				keep := func(*event.Event, error, error, int) error { return nil }
				p, r := start(t, sink, publisher.Config{Registerer: registry, Keep: keep}), newRecorder(t)
				items := r.items("a/1", "poison/1", "a/2", "b/1")
				p.add(items)
				p.drain()
				if storedOf(sink, "a") != "a/1 a/2" || storedOf(sink, "b") != "b/1" ||
					!slices.Equal(sink.DeadLetters(), test.dead) {
					t.Errorf("stored %v and %v, dead letters %v", sink.Stored("a"), sink.Stored("b"), sink.DeadLetters())
				}
				if got := items[1].Outcome(); got != test.want {
					t.Errorf("outcome %s", got)
				}
				if n := testkit.Metric(t, registry, "bridge_publisher_panics_total"); n != 1 {
					t.Errorf("counted %v", n)
				}
			})
		})
	}
}

// What the broker has sent may make a sink panic, which recovers and names the panic.
func TestPanicAtAnswer(t *testing.T) {
	bug := func() (err error) {
		defer sinks.RecoverAnswer(&err)
		panic("hunter2")
	}
	for name, script := range map[string]func(sink *testkit.Session){
		"while it is opened": func(sink *testkit.Session) {
			sink.OnOpen = func(attempt int) error {
				if attempt == 1 {
					return fmt.Errorf("take the fence: %w", bug())
				}
				return nil
			}
		},
		"at the answer to an event": func(sink *testkit.Session) {
			asked := 0
			sink.OnMessage = func(*event.Event) (a testkit.Answer) {
				if asked++; asked == 1 {
					a.Err = bug()
				}
				return a
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				sink, registry := newSink(t, sinks.ByObject), prometheus.NewRegistry()
				script(sink)
				p, r := start(t, sink, publisher.Config{
					Registerer: registry,
					Log:        slog.New(slog.NewTextHandler(&log, nil)),
				}), newRecorder(t)
				p.add(r.items("a/1", "a/2"))
				p.drain()
				if storedOf(sink, "a") != "a/1 a/2" || sink.DeadLetters() != nil {
					t.Errorf("stored %v, dead letters %v", sink.Stored("a"), sink.DeadLetters())
				}
				if n := testkit.Metric(t, registry, "bridge_publisher_panics_total"); n != 1 {
					t.Errorf("counted %v", n)
				}
				if text := log.String(); !strings.Contains(text, "panic_test.go") ||
					strings.Contains(text, "hunter2") {
					t.Errorf("want the stack, and not what it panicked with: %s", text)
				}
			})
		})
	}
}
