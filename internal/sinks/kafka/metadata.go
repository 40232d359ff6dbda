package kafka

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// layout is how the partitions of a topic are distributed.
type layout struct {
	leaders  []int32 // by partition; -1 for none
	epochs   []int32 // of the leaders; 0 also where the broker does not report it
	replicas int     // the smallest number of replicas of a partition
}

// refresh asks where the partitions of a topic are ("": only where the brokers are). A topic that
// does not exist is kafkago.UnknownTopicOrPartition.
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
	var found layout
	if topic != "" {
		found, err = layoutOf(answer, topic)
	}
	stale := c.update(answer, topic, found)
	for _, conn := range stale {
		conn.close()
	}
	if err != nil {
		return layout{}, fmt.Errorf("topic %q: %w", topic, err)
	}
	return found, nil
}

// update takes over a metadata answer, and returns the connections to addresses that no broker has
// any more.
func (c *cluster) update(answer *metadata.Response, topic string, found layout) (stale []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller = answer.ControllerID
	wanted := slices.Clone(c.seeds)
	clear(c.brokers)
	for _, b := range answer.Brokers {
		if b.Host == "" || b.Port < 0 || b.Port > math.MaxUint16 {
			continue
		}
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

// layoutOf reads one topic from a metadata answer.
func layoutOf(answer *metadata.Response, topic string) (layout, error) {
	for _, t := range answer.Topics {
		if t.Name != topic {
			continue
		}
		if t.ErrorCode != 0 {
			return layout{}, kafkago.Error(t.ErrorCode)
		}
		return makeLayout(t.Partitions)
	}
	return layout{}, kafkago.UnknownTopicOrPartition
}

// maxPartitions of a topic: more than any cluster has.
const maxPartitions = 100_000

// makeLayout takes each of the partitions 0 to n-1 once, in any order. The number of lanes follows
// from it, so any other answer is refused.
func makeLayout(partitions []metadata.ResponsePartition) (layout, error) {
	count := len(partitions)
	if count == 0 || count > maxPartitions {
		return layout{}, fmt.Errorf("%w to a metadata request: %d partitions", errMalformed, count)
	}
	const unseen = math.MinInt32
	l := layout{leaders: slices.Repeat([]int32{unseen}, count), epochs: make([]int32, count)}
	for _, p := range partitions {
		i := int(p.PartitionIndex)
		if i < 0 || i >= count || l.leaders[i] != unseen {
			return layout{}, fmt.Errorf("%w to a metadata request: partition %d among %d",
				errMalformed, i, count)
		}
		l.leaders[i], l.epochs[i] = max(p.LeaderID, -1), p.LeaderEpoch
		if n := len(p.ReplicaNodes); l.replicas == 0 || n < l.replicas {
			l.replicas = n
		}
	}
	return l, nil
}
