package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// forgedLease is the Lease with the progress. Once it is edited, every pipeline has delivered more
// than the API server has ever written.
type forgedLease struct {
	bridge.ProgressLease
	edited atomic.Bool
}

func (l *forgedLease) Get(ctx context.Context) (standby.Progress, bool, error) {
	p, led, err := l.ProgressLease.Get(ctx)
	return l.forge(p), led, err
}

func (l *forgedLease) Acquire(ctx context.Context) (standby.Progress, bool, error) {
	p, led, err := l.ProgressLease.Acquire(ctx)
	return l.forge(p), led, err
}

func (l *forgedLease) forge(p standby.Progress) standby.Progress {
	if l.edited.Load() {
		for name, unit := range p.Units {
			unit.Delivered = "99999999999"
			p.Units[name] = unit
		}
	}
	return p
}

// A follower that believed a forged progress would settle what was never sent: after a takeover
// these events would be lost without a gap.
func TestForgedProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		registry := prometheus.NewRegistry()
		p.second.cfg.Registerer = registry
		lease := &forgedLease{ProgressLease: p.second.cfg.Standby.ProgressLease}
		p.second.cfg.Standby.ProgressLease = lease
		p.Create("shop/a", nil)
		p.start()
		p.second.start()
		p.Streams.Bookmark()
		p.inSync()
		p.settle()
		expect(t, p.broker, "added a", "synced")

		p.sessions[0].Kill() // what the leader sends from now on does not arrive
		lease.edited.Store(true)
		p.Create("shop/b", nil)
		p.Update("shop/a", nil)
		p.Streams.Bookmark()
		p.settle()
		const says = "is far ahead of this replica's own watch, and is not believed"
		holds := func(when string, warnings int) {
			t.Helper()
			if held := p.second.Status().Standby.Held; held != 2 {
				t.Errorf("%s it holds %d changes", when, held)
			}
			if n := strings.Count(p.log.String(), says); n != warnings {
				t.Errorf("%s it has warned %d times", when, n)
			}
			if n := testkit.Metric(t, registry, "bridge_standby_doubtful_resources"); n != 1 {
				t.Errorf("%s %v resources are doubtful", when, n)
			}
		}
		holds("at once", 0)
		time.Sleep(time.Minute)
		holds("after a minute", 1)
		time.Sleep(time.Minute)
		holds("after two minutes", 1)

		p.die()
		p.takesOver()
		expect(t, p.broker, "added b", "updated a")
		p.endSecond()
	})
}
