package crash

import (
	"context"
	"io"
	"net"
	"sync"
)

// Gate stands before a broker: while it is shut, connections are cut, and new ones end at once. Its
// methods may be called concurrently.
type Gate struct {
	mu    sync.Mutex
	shut  bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu: those that are open
}

// Shut cuts the broker off: what was sent and not yet answered stays unanswered.
func (g *Gate) Shut() {
	g.mu.Lock()
	g.shut = true
	conns := g.conns
	g.conns = nil
	g.mu.Unlock()
	for conn := range conns {
		_ = conn.Close() // it is gone either way
	}
}

// Open lets connections in again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// Empty reports whether no connection is open.
func (g *Gate) Empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns) == 0
}

// Listen is net.Listen for what is behind the gate.
func (g *Gate) Listen(network, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return &gatedListener{Listener: l, gate: g}, nil
}

// enter notes a connection, or says that the gate is shut.
func (g *Gate) enter(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	if g.conns == nil {
		g.conns = map[net.Conn]struct{}{}
	}
	g.conns[conn] = struct{}{}
	return true
}

func (g *Gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

type gatedListener struct {
	net.Listener
	gate *Gate
}

// Accept gives the next connection that finds the gate open.
func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		gated := &gatedConn{Conn: conn, gate: l.gate}
		if l.gate.enter(gated) {
			return gated, nil
		}
		_ = conn.Close() // nobody has it
	}
}

type gatedConn struct {
	net.Conn
	gate *Gate
}

// Close also takes the connection out of the gate's account.
func (c *gatedConn) Close() error {
	c.gate.leave(c)
	return c.Conn.Close()
}

// Proxy passes what comes through the gate on to a server that can't have its connections made by
// somebody else. It gives the address in front of the gate; stop ends the proxy and waits for its
// connections.
func (g *Gate) Proxy(server string) (address string, stop func(), err error) {
	l, err := g.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { pass(conn, server) })
		}
	})
	return l.Addr().String(), func() {
		_ = l.Close() // a second time is no error that matters
		g.Shut()
		wg.Wait()
	}, nil
}

// pass copies both ways until either side ends.
func pass(client net.Conn, server string) {
	defer client.Close()
	upstream, err := new(net.Dialer).DialContext(context.Background(), "tcp", server)
	if err != nil {
		return // the client sees a broken connection, as of a server that is unavailable
	}
	defer upstream.Close()
	var wg sync.WaitGroup
	oneWay := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // ends with either side, however
		_ = to.Close()           // ends the other direction
		_ = from.Close()
	}
	wg.Go(func() { oneWay(upstream, client) })
	wg.Go(func() { oneWay(client, upstream) })
	wg.Wait()
}
