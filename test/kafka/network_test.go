package kafkatest_test

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// network is what lies between a sink and its brokers; it can be cut.
type network struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (n *network) use(c *kafka.Options) { c.Connection.Dial = n.dial }

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	n.mu.Unlock()
	if down {
		return nil, errors.New("the test has cut the network")
	}
	c, err := new(net.Dialer).DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	if n.down {
		_ = c.Close()
	}
	return c, nil
}

// cut ends all connections and lets none through, or lets them through again.
func (n *network) cut(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}
