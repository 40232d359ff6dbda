package kafkatest_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

var (
	faultTime = flag.Duration("faults.time", 30*time.Second, "how long brokers are killed and leaders are moved")
	faultRate = flag.Int("faults.rate", 1500, "changes per second meanwhile")
)

// TestBrokerFaults runs a bridge into three brokers while these are killed and
// started again, partitions get other leaders, and the bridge itself dies again and again. Then the
// topic must hold every change of every object once, in its order.
func TestBrokerFaults(t *testing.T) {
	needJars(t)
	c, err := kafkatest.Start(kafkatest.Options{Nodes: 3, Dir: filepath.Join(dir, "three"), Lib: lib, Properties: map[string]string{
		"min.insync.replicas": "2",
	}})
	must(t, err)
	t.Cleanup(c.Close)
	p := newPipeline(t, c, func(k *kafka.Options) {
		k.CreateTopics = &kafka.CreateTopics{Partitions: 6, ReplicationFactor: 3, Config: map[string]string{"min.insync.replicas": "2"}}
		k.Connection.Timeout = 5 * time.Second
	})
	h := newHistory(p.server, 300, 1500)
	p.start()
	p.settle(2 * time.Minute)

	ctx, cancel := context.WithTimeout(t.Context(), *faultTime)
	defer cancel()
	var faults sync.WaitGroup
	var kills, moves, crashes int
	faults.Go(func() { kills = killBrokers(ctx, t, c) })
	faults.Go(func() { moves = moveLeaders(ctx, t, c) })
	faults.Go(func() { crashes = p.crashAgainAndAgain(ctx) })
	began := time.Now()
	for first := h.writes; pause(ctx, 10*time.Millisecond); {
		for h.writes < first+int(time.Since(began).Seconds()*float64(*faultRate)) && ctx.Err() == nil { // a slow machine never catches up
			h.change()
		}
	}
	faults.Wait()
	p.settle(3 * time.Minute)
	took := time.Since(began)
	p.stop()

	v := h.judge(t, readAll(t, c, "k8s.test.pods"))
	t.Logf("%d changes in %v; brokers killed %d times, leaders moved %d times, the bridge killed %d times: lost %d, reordered %d, duplicates %d",
		h.writes, took.Round(time.Second), kills, moves, crashes, v.lost, v.reordered, v.duplicates)
	if v != (findings{}) {
		t.Errorf("%+v", v)
	}
	if kills == 0 || moves == 0 || crashes == 0 {
		t.Error("nothing was put to the test")
	}
}

// killBrokers kills one broker after the other, starts it again, and waits until the others have
// given it back its copies.
func killBrokers(ctx context.Context, t *testing.T, c *kafkatest.Cluster) (kills int) {
	for pause(ctx, 2*time.Second) {
		n := c.Nodes[rand.IntN(len(c.Nodes))]
		n.Kill()
		kills++
		pause(ctx, time.Duration(500+rand.IntN(3500))*time.Millisecond)
		if err := n.Start(); err != nil {
			t.Error(err)
			return kills
		}
		if err := n.WaitServing(time.Now().Add(2 * time.Minute)); err != nil {
			t.Error(err)
			return kills
		}
		for !inSync(t, c) {
			time.Sleep(200 * time.Millisecond)
		}
	}
	return kills
}

// inSync reports whether every partition has all its copies.
func inSync(t *testing.T, c *kafkatest.Cluster) bool {
	topics, err := admin(t, c).ListTopicsWithInternal(t.Context())
	if err != nil {
		return false
	}
	whole := true
	topics.EachPartition(func(p kadm.PartitionDetail) { whole = whole && len(p.ISR) == len(p.Replicas) && p.Leader >= 0 })
	return whole
}

// moveLeaders gives partitions another leader, again and again.
func moveLeaders(ctx context.Context, t *testing.T, c *kafkatest.Cluster) (moves int) {
	client := admin(t, c)
	const topic = "k8s.test.pods"
	for pause(ctx, time.Second) {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		moves += moveOne(limited, client, topic)
		cancel()
	}
	return moves
}

// moveOne makes the next replica of each partition the preferred one, and then the leader.
func moveOne(ctx context.Context, client *kadm.Client, topic string) (moved int) {
	topics, err := client.ListTopics(ctx, topic)
	if err != nil {
		return 0
	}
	var order kadm.AlterPartitionAssignmentsReq
	elect := kadm.TopicsSet{}
	for _, p := range topics[topic].Partitions {
		if len(p.ISR) == len(p.Replicas) {
			order.Assign(topic, p.Partition, slices.Concat(p.Replicas[1:], p.Replicas[:1]))
			elect.Add(topic, p.Partition)
		}
	}
	if _, err := client.AlterPartitionAssignments(ctx, order); err != nil {
		return 0
	}
	results, err := client.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect)
	if err != nil {
		return 0
	}
	for _, partitions := range results {
		for _, r := range partitions {
			if r.Err == nil {
				moved++
			}
		}
	}
	return moved
}

// crashAgainAndAgain kills the bridge and starts it again with what it has left.
func (p *bridgeTest) crashAgainAndAgain(ctx context.Context) (crashes int) {
	for pause(ctx, time.Duration(1000+rand.IntN(4000))*time.Millisecond) {
		p.crash()
		crashes++
		p.start()
	}
	return crashes
}

// pause waits, and reports whether ctx still continues.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
