package kafkatest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// network is what lies between a sink and its brokers; it can be cut, and be slow.
type network struct {
	late  atomic.Int64 // nanoseconds, by which each answer comes later
	mu    sync.Mutex
	down  bool
	conns []net.Conn
	doors []net.Listener
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
	here, there := net.Pipe()
	go func() {
		_, _ = io.Copy(c, there)
		_ = c.Close()
	}()
	go n.carryBack(there, c)
	return here, nil
}

// carryBack hands on what a broker says, as late as the test wants.
func (n *network) carryBack(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		size, err := from.Read(buf)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(n.late.Load()))
		if _, err := to.Write(buf[:size]); err != nil {
			return
		}
	}
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
	if down {
		for _, l := range n.doors {
			_ = l.Close()
		}
		n.doors = nil
	}
}

// door gives an address that leads over the network to another one, until the network is cut.
func (n *network) door(t *testing.T, to string) string {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doors = append(n.doors, l)
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			go n.enter(here, to)
		}
	}()
	return l.Addr().String()
}

func (n *network) enter(here net.Conn, to string) {
	defer here.Close()
	there, err := n.dial(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}()
	_, _ = io.Copy(there, here)
	_ = there.Close()
}
