package e2e_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

var failoverReloads = flag.Int("failover.reloads", 0, "how many rounds the test of failovers near reloads has; 0 is once in each order")

// order is in which order two replicas get a changed configuration, and when the leader is killed.
type order string

const (
	leaderThenKilled  order = "the leader gets it and is killed, then the standby gets it"
	standbyThenKilled order = "the standby gets it, and the leader is killed before it does"
	bothThenKilled    order = "both get it, and the leader is killed at once"
	nobodyKilled      order = "both get it, the standby first, and nobody is killed"
)

var orders = []order{leaderThenKilled, standbyThenKilled, bothThenKilled, nobodyKilled}

// TestReplicasNearFailovers changes the configuration while everything
// changes, which each replica gets at its own time, and kills the leader near that. Nothing is lost
// or out of order, no event is in the stream twice, and no list is asked for.
func TestReplicasNearFailovers(t *testing.T) {
	f := newFailover(t)
	f.begin()
	_, from, err := f.Requests(f.ctx, f.User, 0)
	must(t, err)
	rounds := cmp.Or(*failoverReloads, len(orders))
	for i := range rounds {
		f.reloadAndFailOver(orders[i%len(orders)], i)
	}
	must(t, f.churn.Stop())
	f.converge()
	byWatch, byPage := lists(f.requestsSince(from))
	f.judge(rounds, byWatch+byPage)
}

// changed is the configuration with another queue, another retry of a sink, or both: what the
// informer's resources, or the sink, are restarted for.
func changed(round int) string {
	config := failoverConfig
	if round%3 != 1 {
		config = strings.Replace(config, "resources:", fmt.Sprintf("queue: {memory: %dMiB}\n    resources:", 9+round), 1)
	}
	if round%3 != 0 {
		config = strings.Replace(config, "max: 1s", fmt.Sprintf("max: %dms", 1001+round), 1)
	}
	return config
}

func (f *failoverRun) reloadAndFailOver(in order, round int) {
	f.t.Helper()
	leader, standby, config := f.replicas[0], f.replicas[1], changed(round)
	f.ready(standby)
	places := map[*replica]int{leader: leader.Log.Len(), standby: standby.Log.Len()}
	gets := func(r *replica) {
		must(f.t, r.Configure(config))
		must(f.t, r.Signal(syscall.SIGHUP))
	}
	took := func(r *replica) {
		eventually(f.t, r.name+" has taken the changed configuration", testPatience, func() []string {
			if log := r.Log.Since(places[r]); !strings.Contains(log, "the configuration was read again") {
				return []string{log}
			}
			return nil
		})
	}
	moment := func() { time.Sleep(time.Duration(rand.Int64N(int64(1500 * time.Millisecond)))) } // at any moment
	kill := func() {
		moment()
		leader.Kill()
	}
	switch in {
	case leaderThenKilled:
		gets(leader)
		kill()
		moment()
		gets(standby)
	case standbyThenKilled:
		gets(standby)
		kill()
	case bothThenKilled:
		gets(standby)
		gets(leader)
		kill()
	case nobodyKilled:
		gets(standby)
		moment()
		gets(leader)
		took(leader)
		took(standby)
		return
	}
	f.leads(standby)
	took(standby)
	must(f.t, leader.Configure(config))
	must(f.t, leader.Start())
	f.replicas[0], f.replicas[1] = standby, leader
}
