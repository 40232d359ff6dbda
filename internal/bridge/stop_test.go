package bridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A clean stop sends what was read, and the next start only probes.
func TestCleanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.Create("shop/a", nil)
		r.start()
		b.Set(testkit.Slow)
		r.Create("shop/b", nil)
		r.Update("shop/a", nil)
		r.Delete("shop/b")
		synctest.Wait() // it was read
		if took, err := r.end(); err != nil || took > 15*time.Second {
			t.Errorf("Run: %v after %v", err, took)
		}
		expect(t, b, "added a", "synced", "added b", "updated a", "deleted b")

		before := len(r.Requests(testkit.Any))
		r.start()
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("not ready: %v", reasons)
		}
		requests := r.Requests(testkit.Any)[before:]
		if len(requests) != 2 || !testkit.Probes(requests[0]) || !testkit.Watches(requests[1]) || testkit.WatchLists(requests[1]) {
			t.Errorf("requests after a clean stop: %v", requests)
		}
		_, err := r.end()
		testkit.OK(t, err)
		expect(t, b)
	})
}

// What a drain does not finish is sent after the next start.
func TestUnfinishedDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, other := calmBroker(t, "stuck"), calmBroker(t, "other")
		r := newRig(t, stuck, other)
		r.cfg.Drain = time.Minute
		r.Create("shop/a", nil)
		r.start()
		expect(t, stuck, "added a", "synced")
		expect(t, other, "added a", "synced")
		stuck.Set(testkit.Unreachable)
		r.Create("shop/b", nil)
		r.Update("shop/a", nil)
		r.Delete("shop/b")
		r.settle()
		took, err := r.end()
		if !errors.Is(err, bridge.ErrDrain) || took > 5*time.Second {
			t.Errorf("Run: %v after %v, want %v soon: nothing can be sent", err, took, bridge.ErrDrain)
		}
		expect(t, other, "added b", "updated a", "deleted b")
		expect(t, stuck)

		stuck.Set(testkit.Healthy)
		r.start()
		expect(t, stuck, "added b", "updated a", "deleted b")
		expect(t, other) // its part was settled, or lay on disk as settled
		_, err = r.end()
		testkit.OK(t, err)
	})
}

// A drain waits for a sink that is slow, or has not failed, whatever another sink does.
func TestDrainSlowSink(t *testing.T) {
	for _, other := range []testkit.Condition{testkit.Healthy, testkit.Unreachable} {
		t.Run("beside one that is "+string(other), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, beside := calmBroker(t, "slow"), calmBroker(t, "beside")
				slow.OnPublish = func(context.Context, []*sinks.Message) { time.Sleep(9 * time.Second) }
				r := newRig(t, slow, beside)
				r.cfg.Drain = time.Minute
				r.start()
				time.Sleep(10 * time.Second)
				beside.Set(other)
				for range 3 {
					r.Update("shop/a", nil) // each has a call of its own
				}
				r.settle()
				took, err := r.end()
				if took > 30*time.Second || (err != nil) != (other == testkit.Unreachable) {
					t.Errorf("Run: %v after %v", err, took)
				}
				expect(t, slow, "synced", "added a", "updated a", "updated a")
			})
		})
	}
}

// A drain does not wait for a sink that takes nothing. The next start sends what was read.
func TestDrainInVain(t *testing.T) {
	for name, fail := range map[string]func(*rig, *testkit.Broker) error{
		"an operator has paused it": func(r *rig, b *testkit.Broker) error {
			return r.PauseSink(r.t.Context(), b.Name, "ada")
		},
		"it is busy": func(_ *rig, b *testkit.Broker) error {
			b.OnMessage = func(*event.Event) testkit.Answer { return testkit.Answer{Err: testkit.ErrBusy} }
			return nil
		},
		"it can't be reached": func(_ *rig, b *testkit.Broker) error {
			b.Set(testkit.Unreachable)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t, b)
				r.start()
				r.settle()
				testkit.OK(t, fail(r, b))
				r.Create("shop/a", nil)
				synctest.Wait()
				if took, err := r.end(); !errors.Is(err, bridge.ErrDrain) || took > 3*time.Second {
					t.Errorf("Run: %v after %v", err, took)
				}
				b.OnMessage = nil
				b.Set(testkit.Healthy)
				r.start()
				expect(t, b, "synced", "added a")
				_, err := r.end()
				testkit.OK(t, err)
			})
		})
	}

	t.Run("it was never open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := calmBroker(t, "sink")
			b.Set(testkit.Unreachable)
			r := newRig(t, b)
			r.Create("shop/a", nil)
			r.start()
			if took, err := r.end(); !errors.Is(err, bridge.ErrDrain) || took > 3*time.Second {
				t.Errorf("Run: %v after %v", err, took)
			}
			b.Set(testkit.Healthy)
			r.start()
			expect(t, b, "added a", "synced")
			_, err := r.end()
			testkit.OK(t, err)
		})
	})
}

// After a long pause the next attempt may be due long after the deadline: a drain makes one at
// once.
func TestDrainDuringPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.start()
		b.Set(testkit.Unreachable)
		r.Create("shop/a", nil)
		time.Sleep(10 * time.Minute) // attempts are half a minute apart by now
		b.Set(testkit.Healthy)
		if took, err := r.end(); err != nil || took > time.Second {
			t.Errorf("Run: %v after %v", err, took)
		}
		expect(t, b, "synced", "added a")
	})
}

// The cause of a stop is logged.
func TestStopCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		r.start()
		_, err := r.end()
		testkit.OK(t, err)
		if log := r.log.String(); !strings.Contains(log, `cause="`+errStop.Error()+`"`) {
			t.Error("the log does not show the cause")
		}
	})
}

// After a crash only what was not committed is sent again.
func TestCrashRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.cfg.CommitInterval = time.Minute
		r.start()
		r.Create("shop/a", nil)
		time.Sleep(time.Minute) // it is committed
		r.Create("shop/b", nil)
		r.settle()
		expect(t, b, "synced", "added a", "added b")
		after := r.fs.CrashClone(crashed)
		_, err := r.end()
		testkit.OK(t, err)
		r.fs = after
		r.start()
		expect(t, b, "added b")
		_, err = r.end()
		testkit.OK(t, err)
		ids := map[string]int{}
		for _, rec := range b.Records() {
			ids[rec.ID]++
		}
		if len(ids) != 3 || len(b.Records()) != 4 {
			t.Errorf("ids %v", ids)
		}
	})
}
