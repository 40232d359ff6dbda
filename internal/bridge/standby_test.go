package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// pair is two replicas of a bridge, over one API server and one broker.
type pair struct {
	*rig     // of the one that was started first
	second   *rig
	broker   *testkit.Broker
	sessions [2]*testkit.Session
	clients  [2]*testkit.LeaseClient
	leases   *testkit.Leases
}

func newPair(t *testing.T) *pair {
	b := calmBroker(t, "sink")
	leases := testkit.NewLeases()
	p := &pair{rig: newRig(t), broker: b, leases: leases}
	second := *p.rig
	second.fs, second.log = vfs.NewCrashableMem(), &logBuffer{}
	p.second = &second
	for i, r := range []*rig{p.rig, p.second} {
		p.sessions[i], p.clients[i] = b.Connect(i), leases.Client()
		r.cfg.Units = slices.Clone(r.cfg.Units)
		r.cfg.Units[0].Sinks = nil
		r.cfg.Sinks = nil
		r.addSink(b.Name, recaller{p.sessions[i]})
		r.stands(p.clients[i], fmt.Sprint("replica-", i))
	}
	return p
}

// stands makes a rig one of several replicas.
func (r *rig) stands(client *testkit.LeaseClient, identity string) {
	cfg := standby.LeaseConfig{Client: client, Namespace: "tools", Name: "bridge", Identity: identity}
	lease, err := standby.NewLease(cfg)
	testkit.OK(r.t, err)
	r.cfg.Standby = &bridge.Standby{Lease: lease, ProgressLease: standby.NewProgressLease(cfg)}
}

// die ends the first replica as kill -9 does: nothing that it sends from now on arrives, and it
// does not renew its lease.
func (p *pair) die() {
	p.sessions[0].Kill()
	p.clients[0].Cut(true)
	if err := <-p.done; err == nil || !strings.Contains(err.Error(), standby.ErrLost.Error()) {
		p.t.Errorf("the first ended with %v", err)
	}
	testkit.OK(p.t, p.db.Close())
}

// takesOver waits until the second replica leads.
func (p *pair) takesOver() {
	p.t.Helper()
	p.awaits("the second replica leads", func() bool { return p.second.Status().Standby.Role == "leader" })
	p.settle()
}

func (p *pair) inSync() {
	p.t.Helper()
	p.awaits("the second replica is in sync", func() bool { return p.second.Status().Standby.InSync })
}

func (p *pair) awaits(what string, there func() bool) {
	p.t.Helper()
	for began := time.Now(); !there(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute {
			p.t.Fatalf("not within three minutes: %s\n%v", what, p.second.Ready())
		}
	}
}

func (p *pair) endSecond() {
	p.t.Helper()
	_, err := p.second.end()
	testkit.OK(p.t, err)
	if p.t.Failed() {
		p.t.Log(p.second.log.String())
	}
}

// lists are the requests for lists so far, but for probes, and for WatchLists.
func (p *pair) lists() int {
	return len(p.Requests(func(r testkit.Request) bool {
		return !r.Query.Has("watch") && r.Query.Get("limit") != "1" || r.Query.Has("sendInitialEvents")
	}))
}

// A standby sends nothing, and takes over out of its log.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.Create("shop/a", nil)
		p.start()
		p.second.start()
		p.Create("shop/b", nil)
		p.Streams.Bookmark()
		p.inSync()
		p.settle()
		expect(t, p.broker, "added a", "synced", "added b")
		lists := p.lists()
		p.broker.Set(testkit.Hung) // what comes now the leader can't send, and writes to its disk, which dies with it
		p.Update("shop/a", nil)
		p.Delete("shop/b")
		time.Sleep(20 * time.Second)
		p.Streams.Bookmark()
		p.settle()
		p.die()
		p.Expire() // what the API server has forgotten the standby has seen
		p.broker.Set(testkit.Healthy)
		p.takesOver()
		p.Create("shop/c", nil)
		p.settle()
		expect(t, p.broker, "updated a", "deleted b", "added c")
		if n := p.lists() - lists; n > 0 {
			t.Errorf("%d lists were asked for", n)
		}
		p.endSecond()
	})
}

// A replica that takes over before it is in sync reports a gap.
func TestTakeoverBeforeSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.Create("shop/a", nil)
		p.Create("shop/b", nil)
		p.start()
		p.broker.Set(testkit.Unreachable)
		p.Delete("shop/b")
		p.second.start() // of b it can't know
		if s := p.second.Status().Standby; s.InSync {
			t.Error("it says that it is in sync")
		}
		if ready := fmt.Sprint(p.second.Ready()); !strings.Contains(ready, "standby: catching up") {
			t.Errorf("not ready for %s", ready)
		}
		p.die()
		p.broker.Set(testkit.Healthy)
		p.takesOver()
		expect(t, p.broker, "added a", "added b", "synced", "gap inferred", "synced") // a is as it was
		p.endSecond()
	})
}

// A leader that stops hands over at once, and nothing is sent twice.
func TestLeaderHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.Create("shop/a", nil)
		p.start()
		p.second.start()
		p.Create("shop/b", nil)
		p.Streams.Bookmark()
		p.inSync()
		_, err := p.end()
		testkit.OK(t, err)
		began := time.Now()
		p.takesOver()
		if took := time.Since(began); took > 5*time.Second { // of these, 2 to settle
			t.Errorf("it took over after %v", took)
		}
		p.Update("shop/a", nil)
		p.settle()
		expect(t, p.broker, "added a", "synced", "added b", "updated a")
		p.endSecond()
	})
}

// A leader that is cut off from the API server stops sending.
func TestLeaderCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.start()
		p.second.start()
		p.Create("shop/a", nil)
		p.Streams.Bookmark()
		p.inSync()
		p.clients[0].Cut(true)
		time.Sleep(9 * time.Second)
		p.Create("shop/b", nil) // within the deadline
		p.settle()
		p.takesOver()
		p.Create("shop/c", nil)
		p.settle()
		for _, rec := range p.broker.Records() {
			if by := map[string]int{"a": 0, "b": 0, "c": 1}; rec.Name != "" && rec.Process != by[rec.Name] {
				t.Errorf("%s came from replica %d", rec.Name, rec.Process)
			}
		}
		if err := <-p.done; err == nil {
			t.Error("the first has not ended")
		}
		testkit.OK(t, p.db.Close())
		p.endSecond()
	})
}

// Replicas give the same ids after the server's history was rewound.
func TestReplicaIDsAfterRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		v := p.Create("shop/a", nil)
		p.start()
		p.Create("shop/b", nil)
		p.settle()
		p.Rewind(v)
		p.Streams.Cut()
		p.settle()
		p.Update("shop/a", nil)
		p.settle()
		p.second.start() // it has not seen that history go back
		p.Update("shop/a", nil)
		p.Streams.Bookmark()
		p.inSync()
		p.die()
		p.takesOver()
		p.Update("shop/a", nil)
		p.settle()
		var ids []string
		for _, rec := range p.broker.Records() {
			if rec.Process == 1 && rec.Name != "" {
				ids = append(ids, rec.ID)
			}
		}
		if len(ids) != 1 || !strings.HasSuffix(ids[0], "/epoch/1") {
			t.Errorf("the second sent %v, want one of epoch 1", ids)
		}
		p.endSecond()
	})
}
