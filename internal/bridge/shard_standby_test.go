package bridge_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// replicatedShards are two shards with two replicas each, as four pods of one StatefulSet: pods 0
// and 2 have shard 0, pods 1 and 3 have shard 1.
type replicatedShards struct {
	*shards
	leases  *testkit.Leases
	clients map[int]*testkit.LeaseClient // by number of the pod
}

func newReplicatedShards(t *testing.T) *replicatedShards {
	s := &replicatedShards{shards: newShards(t, 40), leases: testkit.NewLeases(), clients: map[int]*testkit.LeaseClient{}}
	for pod := range 4 { // one after the other: the first of each shard leads
		s.begin(pod, resource.Shard{Index: pod % 2, Count: 2})
		s.settle()
	}
	s.roles("leader", "leader", "standby", "standby")
	return s
}

// begin runs a pod with the state that it has left.
func (s *replicatedShards) begin(pod int, shard resource.Shard) {
	s.t.Helper()
	s.clients[pod] = s.leases.Client()
	cfg := standby.LeaseConfig{Client: s.clients[pod], Namespace: "tools", Name: standby.LeaseName("bridge", shard), Identity: fmt.Sprint("pod-", pod)}
	lease, err := standby.NewLease(cfg)
	testkit.OK(s.t, err)
	s.run(pod, shard, &bridge.Standby{Lease: lease, ProgressLease: standby.NewProgressLease(cfg)})
}

// die ends a pod as kill -9 does: nothing that it sends from now on arrives, and it does not renew
// its lease.
func (s *replicatedShards) die(pod int) {
	s.lives[pod].sessions[0].Kill()
	s.clients[pod].Cut(true)
}

// awaitEnd waits for the end of a pod that has died.
func (s *replicatedShards) awaitEnd(pod int) {
	s.t.Helper()
	if err := <-s.lives[pod].done; !errors.Is(err, standby.ErrLost) {
		s.t.Errorf("pod %d ended with %v", pod, err)
	}
	testkit.OK(s.t, s.lives[pod].db.Close())
	delete(s.lives, pod)
}

func (s *replicatedShards) status(pod int) *bridge.ReplicaStatus {
	return s.lives[pod].bridge.Status().Standby
}

// roles compares those of the pods with the wanted ones; "" for a pod that is not asked.
func (s *replicatedShards) roles(want ...string) {
	s.t.Helper()
	for pod, role := range want {
		if role != "" && s.status(pod).Role != role {
			s.t.Fatalf("pod %d is %s, want %s", pod, s.status(pod).Role, role)
		}
	}
}

// awaits changes objects until something is so.
func (s *replicatedShards) awaits(what string, there func() bool) {
	s.t.Helper()
	for began := time.Now(); !there(); s.settle() {
		if time.Since(began) > 2*time.Minute {
			s.t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// sent counts the events of each pod.
func (s *replicatedShards) sent() map[int]int {
	n := map[int]int{}
	for _, rec := range s.broker.Records() {
		n[rec.Process]++
	}
	return n
}

// TestShardStandby ends the leader of one shard while objects change: the
// standby of that shard continues, no other pod changes its part, and a reader of all shards sees
// every change once, without a list.
func TestShardStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplicatedShards(t)
		first := len(s.cluster.all)
		for _, pod := range []int{2, 3} {
			s.awaits(fmt.Sprintf("pod %d is in sync", pod), func() bool { return s.status(pod).InSync })
		}
		requests, events := len(s.cluster.Requests(testkit.Any)), s.sent()
		s.die(0)
		s.awaits("the standby of shard 0 leads", func() bool {
			s.roles("", "leader", "", "standby")
			return s.status(2).Role == "leader"
		})
		s.awaitEnd(0)
		s.settle()
		s.noLists(requests)
		for _, pod := range []int{3, 1, 2} {
			s.stop(pod)
		}
		if repeats := s.judge(s.cluster.all[first:]); repeats > 0 {
			t.Errorf("%d events came twice", repeats)
		}
		if n := s.sent(); n[0] != events[0] || n[1] <= events[1] || n[2] == 0 || n[3] > 0 {
			t.Errorf("events by pod: %v before and %v after the death of pod 0, want some of 1 and 2 since, and none of 0 and 3", events, n)
		}
	})
}

// TestReplicatedShardsGrow goes from two shards to three, as operations.md says it: the pods of the
// new one are started, then those of each old one are stopped, the leader last, and the leader is
// started first.
func TestReplicatedShardsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplicatedShards(t)
		first := len(s.cluster.all)
		inSync := func(pod int) func() bool { return func() bool { return s.status(pod).InSync } }
		for _, pod := range []int{4, 5} {
			s.begin(pod, resource.Shard{Index: 2, Count: 3})
			s.settle()
		}
		s.awaits("pod 5 is in sync", inSync(5))
		requests := len(s.cluster.Requests(testkit.Any))
		for index := range 2 {
			leads, follows := index, index+2
			s.stop(follows)
			s.stop(leads)
			s.settle()
			for _, pod := range []int{leads, follows} {
				s.begin(pod, resource.Shard{Index: index, Count: 3})
				s.settle()
			}
			s.awaits("the standby is in sync", inSync(follows))
		}
		s.noLists(requests)
		s.roles("leader", "leader", "standby", "standby", "leader", "standby")
		for _, pod := range []int{5, 3, 2, 4, 1, 0} {
			s.stop(pod)
		}
		s.judge(s.cluster.all[first:])
	})
}
