package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// shardedConfig has two shards write to topics of their own, so that it shows which of them has
// sent what.
var shardedConfig = `shard: "${SHARD}"` + strings.Replace(failoverConfig, "kafka: {", `kafka: {topic: "k8s.{cluster}.{resource}.shard-${NUMBER}", `, 1)

// shardedRun are two shards with two replicas each. The first of each leads.
type shardedRun struct {
	*failoverRun
	shards [2][2]*replica
}

func newSharded(t *testing.T) *shardedRun {
	t.Helper()
	s := &shardedRun{failoverRun: newReplicas(t)}
	for pod := range 4 { // as pods of a StatefulSet go round the shards
		number := fmt.Sprint(pod % 2)
		s.shards[pod%2][pod/2] = s.newReplica(fmt.Sprint("pod-", pod), shardedConfig, map[string]string{"SHARD": number + "/2", "NUMBER": number})
	}
	s.replicas = s.shards[0] // whose program checks the streams
	return s
}

func (s *shardedRun) begin() {
	s.t.Helper()
	s.ledger = s.witness(s.collections()...)
	for replica := range 2 {
		for shard := range s.shards {
			s.start(s.shards[shard][replica].Bridge)
		}
		if replica == 0 {
			s.churn = crash.StartChurn(s.ctx, s.client, s.namespace, rand.Uint64(), 1)
			s.t.Cleanup(func() { _ = s.churn.Stop() })
		}
	}
	s.roles()
}

// roles waits until the first replica of each shard leads, and sees that the second does not.
func (s *shardedRun) roles() {
	s.t.Helper()
	for _, shard := range s.shards {
		s.leads(shard[0])
		status, err := shard[1].Status(s.ctx)
		must(s.t, err)
		if status.Standby.Role != "standby" {
			s.t.Errorf("%s is %s as well", shard[1].name, status.Standby.Role)
		}
	}
}

// failOver kills the leader of a shard, at any moment, and lets it stand by when its successor
// leads.
func (s *shardedRun) failOver(shard int) {
	s.t.Helper()
	r := &s.shards[shard]
	s.ready(r[1])
	time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
	r[0].Kill()
	s.leads(r[1])
	must(s.t, r[0].Start())
	r[0], r[1] = r[1], r[0]
	s.ready(r[1])
	s.roles()
}

// TestShardLeadersKilled kills the leaders of two shards under load.
// Nothing is lost or out of order, no event is in the stream twice, no list is asked for, and each
// object is of one shard from the beginning to the end.
func TestShardLeadersKilled(t *testing.T) {
	s := newSharded(t)
	s.begin()
	_, from, err := s.Requests(s.ctx, s.User, 0)
	must(t, err)
	const count = 3
	for i := range count {
		s.failOver(i % len(s.shards))
	}
	must(t, s.churn.Stop())
	s.converge()
	byWatch, byPage := lists(s.requestsSince(from))
	s.judge(count, byWatch+byPage)
	s.judgeShards()
}

// judgeShards sees that each object is in the topic of one shard, and that both have some.
func (s *shardedRun) judgeShards() {
	s.t.Helper()
	events, err := s.kafka.Refresh(s.ctx)
	must(s.t, err)
	of, objects := map[string]string{}, map[string]int{}
	for i := range events {
		e := &events[i]
		if e.Attribute("name") == "" {
			continue
		}
		shard := e.Topic[strings.LastIndexByte(e.Topic, '-')+1:]
		switch before, known := of[e.Key]; {
		case !known:
			of[e.Key] = shard
			objects[shard]++
		case before != shard:
			s.t.Errorf("%s came from shard %s and from shard %s", e.Key, before, shard)
		}
	}
	if objects["0"] == 0 || objects["1"] == 0 || len(objects) != 2 {
		s.t.Errorf("objects by shard: %v", objects)
	}
	s.t.Logf("objects by shard: %v", objects)
}
