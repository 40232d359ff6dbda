package kafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// layout is where the partitions of a topic lie.
type layout struct {
	leaders  []int32 // by partition; -1 for none
	epochs   []int32 // of the leaders; 0 also where the broker does not tell
	replicas int     // the smallest number of replicas of a partition
}

// refresh asks where the partitions of a topic are (of no topic: only where the brokers are).
// A topic that does not exist is kafkago.UnknownTopicOrPartition.
func (c *cluster) refresh(ctx context.Context, topic string) (layout, error) {
	names := []string{} // nil would ask for all topics
	if topic != "" {
		names = append(names, topic)
	}
	res, err := c.askAny(ctx, &metadata.Request{TopicNames: names})
	if err != nil {
		return layout{}, err
	}
	answer := res.(*metadata.Response)
	found, code := layout{}, kafkago.Error(0)
	if topic != "" {
		found, code = layoutOf(answer, topic)
	}
	stale := c.learn(answer, topic, found)
	for _, conn := range stale {
		conn.close()
	}
	if code != 0 {
		return layout{}, fmt.Errorf("topic %q: %w", topic, code)
	}
	return found, nil
}

// learn notes what a metadata answer says, and gives back the connections to addresses that no broker has any more.
func (c *cluster) learn(answer *metadata.Response, topic string, found layout) (stale []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller = answer.ControllerID
	wanted := slices.Clone(c.seeds)
	clear(c.brokers)
	for _, b := range answer.Brokers {
		address := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		c.brokers[b.NodeID] = address
		wanted = append(wanted, address)
	}
	for address, conns := range c.idle {
		if !slices.Contains(wanted, address) {
			stale = append(stale, conns...)
			delete(c.idle, address)
		}
	}
	if len(found.leaders) > 0 {
		c.topics[topic] = found
	}
	return stale
}

// layoutOf reads one topic out of a metadata answer.
func layoutOf(answer *metadata.Response, topic string) (layout, kafkago.Error) {
	for _, t := range answer.Topics {
		if t.Name != topic {
			continue
		}
		if t.ErrorCode != 0 {
			return layout{}, kafkago.Error(t.ErrorCode)
		}
		return makeLayout(t.Partitions), 0
	}
	return layout{}, kafkago.UnknownTopicOrPartition
}

func makeLayout(partitions []metadata.ResponsePartition) layout {
	count := 0
	for _, p := range partitions {
		count = max(count, int(p.PartitionIndex)+1)
	}
	l := layout{leaders: make([]int32, count), epochs: make([]int32, count)}
	for i := range l.leaders {
		l.leaders[i] = -1
	}
	for _, p := range partitions {
		l.leaders[p.PartitionIndex], l.epochs[p.PartitionIndex] = p.LeaderID, p.LeaderEpoch
		if n := len(p.ReplicaNodes); l.replicas == 0 || n < l.replicas {
			l.replicas = n
		}
	}
	return l
}
