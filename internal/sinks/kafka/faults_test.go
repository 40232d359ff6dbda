package kafka_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// hideConfigs makes the broker refuse to describe configurations, as one does whose user may not
// read them.
func hideConfigs(c *kfake.Cluster) {
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed,
		Count: -1,
	})
}

// produceFault makes the next count produce requests fail.
func produceFault(c *kfake.Cluster, err *kerr.Error, count int) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: count})
}

var errUnreachable = errors.New("unreachable, says the test")

// network stands between the sink and the brokers.
type network struct {
	// loseAnswers is how many produce requests reach the broker, and are carried out, but get no
	// answer.
	loseAnswers atomic.Int64
	// foreign is how many further connections reach something that is no Kafka broker.
	foreign atomic.Int64
	// lost is called after each lost answer.
	lost func()

	mu    sync.Mutex
	down  bool
	conns map[*netConn]bool
}

func (n *network) use(c *kafka.Options) { c.Connection.Dial = n.dial }

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errUnreachable
	}
	if n.foreign.Add(-1) >= 0 {
		return somethingElse(), nil
	}
	raw, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &netConn{Conn: raw, network: n}
	if n.conns == nil {
		n.conns = make(map[*netConn]bool)
	}
	n.conns[c] = true
	return c, nil
}

// somethingElse greets as a NATS server does.
func somethingElse() net.Conn {
	ours, theirs := net.Pipe()
	go func() {
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = theirs.Write([]byte(`INFO {"server_id":"NX","version":"2.15.2"}` + "\r\n"))
	}()
	return ours
}

// cut ends the connection on the next request of a kind, and lets the next connections reach
// something else.
func (n *network) cut(c *kfake.Cluster, key kmsg.Key, foreign int64) {
	c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		n.foreign.Store(foreign)
		return nil, errUnreachable, true
	})
}

// setDown cuts all connections and refuses new ones, or allows them again.
func (n *network) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for c := range n.conns {
		_ = c.Conn.Close()
	}
	clear(n.conns)
}

// netConn carries one request at a time, so what is read answers what was last written.
type netConn struct {
	net.Conn
	network *network
	begun   bool // a request is being written
	produce bool // it is a produce request
}

func (c *netConn) Write(p []byte) (int, error) {
	const key = 5 // the low byte of the API key, behind the size
	if !c.begun && len(p) > key {
		c.begun, c.produce = true, p[key] == byte(kmsg.Produce) && p[key-1] == 0
	}
	return c.Conn.Write(p)
}

func (c *netConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.begun && c.produce && c.network.loseAnswers.Add(-1) >= 0 {
		_ = c.Conn.Close()
		if c.network.lost != nil {
			c.network.lost()
		}
		return 0, io.EOF
	}
	c.begun = false
	return n, err
}

func (c *netConn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	delete(c.network.conns, c)
	return c.Conn.Close()
}
