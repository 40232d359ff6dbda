package publisher_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestTryAdd(t *testing.T) {
	type test func(t *testing.T, sink *testkit.Session, r *recorder, p *running)
	run := func(name string, cfg publisher.Config, test test) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := newSink(t, sinks.ByObject)
				test(t, sink, newRecorder(t), start(t, sink, cfg))
			})
		})
	}
	tryAdd := func(t *testing.T, p *running, items []*publisher.Item, want bool) {
		t.Helper()
		before := p.Status().QueuedItems
		if got := p.TryAdd(items); got != want {
			t.Fatalf("TryAdd is %v, want %v", got, want)
		}
		if got := p.Status().QueuedItems; !want && got != before {
			t.Errorf("%d items are queued after it took none, want %d", got, before)
		}
	}
	run("takes all, behind what was added before", publisher.Config{},
		func(t *testing.T, sink *testkit.Session, r *recorder, p *running) {
			p.add(r.items("a/1", "b/1"))
			tryAdd(t, p, r.items("a/2", "c/1"), true)
			p.add(r.items("a/3"))
			p.drain()
			wantOrder(t, sink, "a", "a/1", "a/2", "a/3")
			wantOrder(t, sink, "c", "c/1")
			if r.count() != 5 {
				t.Errorf("%d settled, want 5", r.count())
			}
		})
	t.Run("takes none while the sink is not open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink, open := newSink(t, sinks.ByObject), make(chan struct{})
			sink.OnOpen = func(int) error {
				<-open
				return nil
			}
			r, p := newRecorder(t), start(t, sink, publisher.Config{})
			tryAdd(t, p, r.items("a/1"), false)
			close(open)
			synctest.Wait()
			tryAdd(t, p, r.items("a/1"), true)
			p.drain()
		})
	})
	run("takes none where not all have room", publisher.Config{MaxItems: 2},
		func(t *testing.T, sink *testkit.Session, r *recorder, p *running) {
			synctest.Wait()
			items := r.items("a/1", "b/1", "c/1")
			tryAdd(t, p, items, false)
			p.add(items)
			p.drain()
			if r.count() != 3 {
				t.Errorf("%d settled, want 3", r.count())
			}
		})
	run("takes none where a lane is not known", publisher.Config{},
		func(t *testing.T, sink *testkit.Session, r *recorder, p *running) {
			known := false
			sink.OnLane = func(e *event.Event) error {
				if e.Name == "b" && !known {
					return testkit.ErrBusy
				}
				return nil
			}
			synctest.Wait()
			items := r.items("a/1", "b/1")
			tryAdd(t, p, items, false)
			known = true
			tryAdd(t, p, items, true)
			p.drain()
		})
	run("takes none behind an item whose lane is not known", publisher.Config{},
		func(t *testing.T, sink *testkit.Session, r *recorder, p *running) {
			known := false
			sink.OnLane = func(*event.Event) error {
				if !known {
					return testkit.ErrBusy
				}
				return nil
			}
			p.add(r.items("a/1"))
			known = true
			tryAdd(t, p, r.items("a/2"), false)
			p.drain()
			wantOrder(t, sink, "a", "a/1")
		})
	run("takes none after the end", publisher.Config{},
		func(t *testing.T, sink *testkit.Session, r *recorder, p *running) {
			synctest.Wait()
			p.stop()
			tryAdd(t, p, r.items("a/1"), false)
		})
}
