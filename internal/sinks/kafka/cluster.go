package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// cluster has what the sink knows of the brokers, and its connections to them. All methods may be
// called concurrently; none holds a lock while it talks to a broker.
type cluster struct {
	dialer  *dialer
	seeds   []string
	timeout time.Duration
	metrics *metrics

	mu         sync.Mutex
	closed     bool
	idle       map[string][]*conn // by address, the most recently used last
	brokers    map[int32]string   // address by node id
	controller int32
	topics     map[string]layout
}

func newCluster(c Connection, m *metrics) *cluster {
	return &cluster{
		dialer: newDialer(c), seeds: c.Brokers, timeout: c.Timeout, metrics: m,
		idle: make(map[string][]*conn), brokers: make(map[int32]string),
		topics: make(map[string]layout),
	}
}

// close ends all idle connections. Those in use end when they are released.
func (c *cluster) close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, conns := range idle {
		for _, conn := range conns {
			conn.close()
		}
	}
}

// acquire returns an idle connection to a broker, or a new one.
func (c *cluster) acquire(ctx context.Context, address string) (*conn, error) {
	for {
		conn := c.popIdle(address)
		if conn == nil {
			break
		}
		if conn.usable(time.Now()) {
			return conn, nil
		}
		conn.close()
	}
	conn, err := c.dialer.connect(ctx, address)
	if err != nil {
		return nil, &unsentError{fmt.Errorf("%s: %w", address, err)}
	}
	c.metrics.connections.Inc()
	return conn, nil
}

func (c *cluster) popIdle(address string) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conns := c.idle[address]
	if len(conns) == 0 {
		return nil
	}
	last := len(conns) - 1
	conn := conns[last]
	conns[last] = nil
	c.idle[address] = conns[:last]
	return conn
}

// release returns a connection that can carry another request to the pool.
func (c *cluster) release(address string, conn *conn) {
	conn.idle = time.Now()
	c.mu.Lock()
	keep := !c.closed
	if keep {
		c.idle[address] = append(c.idle[address], conn)
	}
	c.mu.Unlock()
	if !keep {
		conn.close()
	}
}

// ask sends one request to one broker. An unsentError means that the broker has not seen the
// request. After any other error the idle connections to the broker are closed too: they are likely
// to have failed with this one.
func (c *cluster) ask(
	ctx context.Context, address string, req protocol.Message,
) (protocol.Message, error) {
	conn, err := c.acquire(ctx, address)
	if err != nil {
		return nil, err
	}
	res, err := conn.roundTrip(ctx, req, c.timeout)
	if err != nil {
		conn.close()
		c.drop(address)
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	c.release(address, conn)
	return res, nil
}

// drop closes the idle connections to a broker.
func (c *cluster) drop(address string) {
	c.mu.Lock()
	conns := c.idle[address]
	delete(c.idle, address)
	c.mu.Unlock()
	for _, conn := range conns {
		conn.close()
	}
}

// unsentError is an error from before a request was sent: the broker can't have carried it out.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// askAny sends a request that any broker can answer, and may receive twice. It asks one broker
// after the other until one answers. The error names each.
func (c *cluster) askAny(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	var failed []any
	for _, address := range c.addresses() {
		res, err := c.ask(ctx, address, req)
		if _, unsent := errors.AsType[*unsentError](err); err != nil && !unsent {
			// on a new connection: the first may have been a dead idle one
			res, err = c.ask(ctx, address, req)
		}
		if err == nil {
			return res, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	what := "no broker answered: "
	for _, err := range failed {
		if classify(err.(error)) == denied {
			what = "no broker can be used: " // one has answered
		}
	}
	return nil, fmt.Errorf(what+
		strings.TrimSuffix(strings.Repeat("%w; ", len(failed)), "; "), failed...)
}

// addresses are those of the brokers: the known ones with a connection first, then the other known
// ones, then the seeds.
func (c *cluster) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var connected, known []string
	for _, address := range c.brokers {
		if len(c.idle[address]) > 0 {
			connected = append(connected, address)
		} else {
			known = append(known, address)
		}
	}
	all := slices.Concat(connected, known, c.seeds)
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(a string) bool {
		if seen[a] {
			return true
		}
		seen[a] = true
		return false
	})
}

// leader returns the address of a partition's leader, by the latest metadata.
func (c *cluster) leader(topic string, partition int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.topics[topic]
	if partition >= len(l.leaders) {
		return "", &unsentError{fmt.Errorf("topic %q has no partition %d: %w", topic, partition,
			kafkago.UnknownTopicOrPartition)}
	}
	address, ok := c.brokers[l.leaders[partition]]
	if !ok {
		return "", &unsentError{fmt.Errorf("%s/%d: %w", topic, partition, errNoLeader)}
	}
	return address, nil
}

// epoch returns the epoch of a partition's leader, by the latest metadata; -1 (any) when it is not
// known. With the epoch in a request, a deposed leader that does not know it yet answers with an
// error, and not with its outdated log.
func (c *cluster) epoch(topic string, partition int) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.topics[topic]; partition < len(l.epochs) && l.epochs[partition] > 0 {
		return l.epochs[partition]
	}
	return -1
}

// askLeader sends a request to a partition's leader.
func (c *cluster) askLeader(
	ctx context.Context, topic string, partition int, req protocol.Message,
) (protocol.Message, error) {
	address, err := c.leader(topic, partition)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, address, req)
}

// askController sends a request that only the controller carries out; with KRaft any broker
// forwards it.
func (c *cluster) askController(
	ctx context.Context, req protocol.Message,
) (protocol.Message, error) {
	c.mu.Lock()
	address, ok := c.brokers[c.controller]
	c.mu.Unlock()
	if !ok {
		return c.askAny(ctx, req)
	}
	return c.ask(ctx, address, req)
}

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
