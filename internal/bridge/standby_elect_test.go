package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// newcomer is one more replica of a pair, with an empty state.
func (p *pair) newcomer(run int) *rig {
	r := *p.second
	r.fs, r.log = vfs.NewCrashableMem(), &logBuffer{}
	p.enters(&r, run)
	return &r
}

// enters gives a replica that is to start a way of its own to the leases and to the broker.
func (p *pair) enters(r *rig, run int) (*testkit.LeaseClient, *testkit.Session) {
	client, session := p.leases.Client(), p.broker.Connect(run)
	r.cfg.Units = slices.Clone(r.cfg.Units)
	r.cfg.Units[0].Sinks, r.cfg.Sinks = nil, nil
	r.addSink(p.broker.Name, recaller{session})
	r.stands(client, fmt.Sprint("replica-", run))
	return client, session
}

// stored counts the events that a broker has of an operation, about an object or "". An answer may
// have been lost.
func stored(b *testkit.Broker, op event.Op, name string) int {
	return counts(b, func(rec *testkit.Record) bool { return rec.Op == op && rec.Name == name })
}

// sent counts those that a replica knows to be stored.
func sent(b *testkit.Broker, op event.Op, name string) int {
	return counts(b, func(rec *testkit.Record) bool { return rec.Op == op && rec.Name == name && rec.Acked })
}

func counts(b *testkit.Broker, is func(*testkit.Record) bool) int {
	ids := map[string]bool{}
	for _, rec := range b.Records() {
		if is(rec) {
			ids[rec.ID] = true
		}
	}
	return len(ids)
}

func (p *pair) leads(r *rig) {
	p.t.Helper()
	p.awaits("a replica leads", func() bool { return r.Status().Standby.Role == "leader" })
	p.settle()
}

// The leader has not sent a delete when it dies, one replica knows of it, and another has begun
// behind it: whenever that is, the delete is sent.
func TestElectionOfInSyncReplica(t *testing.T) {
	for i := range 12 {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			p.Create("shop/a", nil)
			p.Create("shop/b", nil)
			p.start()
			p.second.start()
			p.Streams.Bookmark()
			p.inSync()
			p.broker.Set(testkit.Unreachable)
			p.Delete("shop/b") // the second has it in its log
			third := p.newcomer(2)
			time.Sleep(time.Duration(i) * 137 * time.Millisecond)
			third.start()
			time.Sleep(3 * time.Second)
			p.die()
			p.broker.Set(testkit.Healthy)
			p.takesOver()
			time.Sleep(5 * time.Second)
			if deletes, gaps := stored(p.broker, event.Deleted, "b"), stored(p.broker, event.Gap, ""); deletes != 1 || gaps != 0 {
				t.Errorf("%d deletes and %d gaps were sent", deletes, gaps)
			}
			_, err := third.end()
			testkit.OK(t, err)
			p.endSecond()
		})
	}
}

// A leader that is killed is started again with its volume, while the other replica has just begun:
// it continues with what it has.
func TestElectionOfReturnedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.Create("shop/a", nil)
		p.Create("shop/b", nil)
		p.start()
		p.settle()
		expect(t, p.broker, "added a", "added b", "synced")
		p.broker.Set(testkit.Unreachable)
		p.Delete("shop/b")
		time.Sleep(20 * time.Second)
		p.Streams.Bookmark() // its watermark passes what it has not delivered
		p.settle()
		p.second.start()
		p.die()
		p.enters(p.rig, 3)
		p.rig.start()
		p.broker.Set(testkit.Healthy)
		p.leads(p.rig)
		if deletes, gaps := stored(p.broker, event.Deleted, "b"), stored(p.broker, event.Gap, ""); deletes != 1 || gaps != 0 {
			t.Errorf("%d deletes and %d gaps were sent", deletes, gaps)
		}
		_, err := p.end()
		testkit.OK(t, err)
		p.endSecond()
	})
}

// A replica that had to lead knows nothing of a delete that was not sent: a gap reports it. One
// that does know comes back and follows: the lease does not change hands for it.
func TestElectionKeepsLeader(t *testing.T) {
	for range 4 { // who is elected is up to chance
		synctest.Test(t, testLostDelete)
	}
}

func testLostDelete(t *testing.T) {
	p := newPair(t)
	for _, name := range []string{"a", "b", "c"} {
		p.Create(resource.MakeKey("shop", name), nil)
	}
	p.start()
	p.second.start()
	p.Streams.Bookmark()
	p.inSync()
	p.broker.Set(testkit.Unreachable)
	p.Delete("shop/b")
	p.Update("shop/a", nil)
	p.Delete("shop/c")
	time.Sleep(20 * time.Second)
	p.endSecond()
	p.die()
	p.Create("shop/c", nil) // again
	p.settle()
	third := p.newcomer(2)
	third.start()
	p.broker.Set(testkit.Healthy)
	p.leads(third)
	p.Update("shop/a", nil)
	p.Streams.Bookmark()
	p.settle()
	if deletes, gaps := sent(p.broker, event.Deleted, "b"), stored(p.broker, event.Gap, ""); deletes != 0 || gaps != 1 {
		t.Fatalf("%d deletes and %d gaps were sent by one that can't know", deletes, gaps)
	}
	p.enters(p.second, 3)
	p.second.start()
	inOrder(t, p.broker)
	time.Sleep(time.Minute)
	if led := strings.Count(p.log.String(), "this replica leads now"); led != 2 || third.Status().Standby.Role != "leader" {
		t.Errorf("the lease was taken %d times, want once by each that led", led)
	}
	_, err := third.end()
	testkit.OK(t, err)
	p.endSecond()
}

// One bridge becomes two replicas. It stopped while its broker was unavailable, and the new one
// leads first: a gap reports what was not sent.
func TestGrowToTwoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		asked := 0
		p.second.cfg.Sinks[0].Sink = rememberer{p.second.cfg.Sinks[0].Sink, sinks.Trace{MessageID: "all/uid-1/7", PartitionKey: "pods/shop/web"}, nil, &asked}
		p.cfg.Standby = nil
		p.Create("shop/a", nil)
		p.Create("shop/b", nil)
		p.start()
		p.settle()
		expect(t, p.broker, "added a", "added b", "synced")
		p.broker.Set(testkit.Unreachable)
		p.Delete("shop/b")
		p.Update("shop/a", nil)
		time.Sleep(20 * time.Second)
		if _, err := p.end(); err != nil && !errors.Is(err, bridge.ErrDrain) {
			t.Error(err)
		}
		p.broker.Set(testkit.Healthy)
		p.second.start()
		time.Sleep(time.Minute)
		p.Streams.Bookmark()
		p.settle()
		p.enters(p.rig, 2)
		p.rig.start()
		time.Sleep(time.Minute)
		// The broker may have stored the delete without an answer, before the bridge stopped.
		if gaps := stored(p.broker, event.Gap, ""); gaps != 1 {
			t.Errorf("%d gaps were sent", gaps)
		}
		inOrder(t, p.broker)
		_, err := p.end()
		testkit.OK(t, err)
		p.endSecond()
	})
}

// The first of several replicas may come after a bridge that was alone, whose state it does not
// have.
func TestFirstLeaderGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		asked := 0
		for _, r := range []*rig{p.rig, p.second} {
			r.cfg.Sinks[0].Sink = rememberer{r.cfg.Sinks[0].Sink, sinks.Trace{MessageID: "all/uid-1/7", PartitionKey: "pods/shop/web"}, nil, &asked}
		}
		p.Create("shop/a", nil)
		p.start()
		p.settle()
		expect(t, p.broker, "gap inferred", "added a", "synced")
		p.second.start()
		p.Streams.Bookmark()
		began := time.Now()
		p.inSync()
		if took := time.Since(began); took > 8*time.Second || asked != 1 {
			t.Errorf("asked %d times, in sync after %v: of what a leader has sent the others know", asked, took)
		}
		_, err := p.end()
		testkit.OK(t, err)
		p.endSecond()
	})
}

// stuck is a board that can't be taken.
type stuck struct{ bridge.ProgressLease }

func (stuck) Acquire(context.Context) (p standby.Progress, led bool, err error) {
	return p, false, errors.New("leases are forbidden")
}

// A replica that can't take over reports so, and gives the lease back.
func TestTakeoverFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.cfg.Standby.ProgressLease = stuck{p.cfg.Standby.ProgressLease}
		p.start()
		time.Sleep(5 * time.Second)
		if ready := fmt.Sprint(p.Ready()); !strings.Contains(ready, "has the lease and can't take over: leases are forbidden") {
			t.Errorf("not ready for %s", ready)
		}
		p.second.start()
		if err := <-p.done; !errors.Is(err, standby.ErrLost) || !strings.Contains(err.Error(), "leases are forbidden") {
			t.Errorf("it ended with %v", err)
		}
		testkit.OK(t, p.db.Close())
		began := time.Now()
		p.takesOver()
		if took := time.Since(began); took > 5*time.Second { // of these, 2 to settle
			t.Errorf("the second took over after %v", took)
		}
		p.endSecond()
	})
}

// A standby sends no snapshot, and names the replica that would.
func TestStandbySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.Create("shop/a", nil)
		p.start()
		p.second.start()
		p.Streams.Bookmark()
		p.inSync()
		units, err := p.second.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "all"})
		if !errors.Is(err, bridge.ErrStandby) || !strings.Contains(err.Error(), "replica-0") || units != nil {
			t.Errorf("got %v, %v", units, err)
		}
		_, err = p.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "all"})
		testkit.OK(t, err)
		_, err = p.end()
		testkit.OK(t, err)
		p.endSecond()
	})
}

// A configuration is rolled out one replica after the other, each when the one before is ready:
// what only the new one has does not hold it up.
func TestStandbyReadiness(t *testing.T) {
	for name, version := range map[string]string{"another configuration": "2", "the same configuration, as far as is known": "1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newReloadPair(t)
				other := p.unit
				other.Informer = "other"
				p.second.cfg.Units, p.second.cfg.Standby.Version = append(p.second.cfg.Units, other), version
				asked := 0 // a standby's sinks are not open: it does not wait for them
				p.second.cfg.Sinks[0].Sink = rememberer{p.second.cfg.Sinks[0].Sink, sinks.Trace{}, nil, &asked}
				p.Create("shop/a", nil)
				p.start()
				p.second.start()
				p.Streams.Bookmark()
				began := time.Now()
				p.awaits("the second is ready", func() bool { return len(p.second.Ready()) == 0 })
				took := time.Since(began)
				if version == "2" && took > 8*time.Second || version == "1" && took < time.Minute {
					t.Errorf("it is ready after %v", took)
				}
				behind := p.second.Status().Standby.Behind
				if len(behind) != 1 || behind[0].Component != "informer other/pods" || p.second.Status().Standby.InSync {
					t.Errorf("the status reports %v", behind)
				}
				p.die()
				p.takesOver()
				expect(t, p.broker, "added a", "synced", "added a", "synced") // of each informer
				p.endSecond()
			})
		})
	}
}

// A standby that waits for its leader to take a change stops waiting when it learns that the
// change is old.
func TestStandbyReloadGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.begin()
		ctx, cancel := context.WithCancelCause(t.Context())
		old := errors.New("the file has changed again")
		time.AfterFunc(5*time.Second, func() { cancel(old) })
		if _, err := p.second.Reconfigure(ctx, p.becomes("2", p.metadata())); !errors.Is(err, old) {
			t.Errorf("got %v", err)
		}
		p.reload(p.rig, p.becomes("3", p.metadata()))
		if done := p.reload(p.second, p.becomes("3", p.metadata())); done.UnitsRestarted != 1 {
			t.Errorf("got %v", done)
		}
		p.step()
		_, err := p.end()
		testkit.OK(t, err)
		p.endSecond()
	})
}
