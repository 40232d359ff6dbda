package faults

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
)

// Wire is the way to a server, over TCP. At first it passes everything on. Its methods may be
// called concurrently.
type Wire struct {
	server  string
	address string
	wg      sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener         // guarded by mu; nil while connections are refused
	budget   func(cuts int) int64 // guarded by mu: bytes of answers after which a connection is cut; nil for never
	links    map[*link]struct{}   // guarded by mu: the connections
	cuts     int                  // guarded by mu
	made     int                  // guarded by mu: connections so far
}

// NewWire begins to pass on to a server at host:port.
func NewWire(server string) (*Wire, error) {
	w := &Wire{server: server, address: "127.0.0.1:0", links: map[*link]struct{}{}}
	return w, w.Accept()
}

// Address is where clients connect to. It stays the same.
func (w *Wire) Address() string { return w.address }

// Accept lets new connections in, after Refuse.
func (w *Wire) Accept() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", w.address)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.listener, w.address = l, l.Addr().String()
	w.mu.Unlock()
	w.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.pass(client) })
		}
	})
	return nil
}

// Refuse cuts all connections, and has new ones refused, as of a server that is not there.
func (w *Wire) Refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close() // nobody else has it
		w.listener = nil
	}
	for l := range w.links {
		l.close()
	}
}

// CutAfter cuts each connection, those that there are and new ones, when so many more bytes of
// answers have passed. The budget is asked for each by itself, with the number of cuts so far; it
// must not call the wire. nil ends it.
func (w *Wire) CutAfter(budget func(cuts int) int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget = budget
	for l := range w.links {
		l.limit(budget, w.cuts)
	}
}

// Deafen has the connections that there are go silent: they stay open and nothing passes any more,
// in either direction. New ones are well.
func (w *Wire) Deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.setDeaf()
	}
}

// Cuts is how many connections were cut amid an answer.
func (w *Wire) Cuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}

// Made is how many connections were made.
func (w *Wire) Made() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made
}

// Stop ends everything and waits for it.
func (w *Wire) Stop() {
	w.Refuse()
	w.wg.Wait()
}

// pass lives as long as a connection.
func (w *Wire) pass(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", w.server)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server}
	w.enter(l)
	defer w.leave(l)
	var wg sync.WaitGroup
	wg.Go(func() { l.copy(server, client, func(int) (int, bool) { return 0, false }) })
	wg.Go(func() { l.copy(client, server, l.spend) })
	wg.Wait()
}

func (w *Wire) enter(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	l.limit(w.budget, w.cuts)
	w.links[l] = struct{}{}
	if w.listener == nil {
		l.close()
	}
}

func (w *Wire) leave(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, l)
	if l.isCut() {
		w.cuts++
	}
}

// link is one connection through a Wire.
type link struct {
	client, server net.Conn

	mu     sync.Mutex
	deaf   bool  // guarded by mu
	cut    bool  // guarded by mu
	capped bool  // guarded by mu
	left   int64 // guarded by mu: bytes until the cut, when capped
}

func (l *link) limit(budget func(int) int64, cuts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.capped = budget != nil; l.capped {
		l.left = budget(cuts)
	}
}

func (l *link) setDeaf() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

func (l *link) isDeaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// spend says how many of n bytes still pass when the connection is to be cut now.
func (l *link) spend(n int) (pass int, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.capped || int64(n) < l.left {
		l.left -= int64(n)
		return 0, false
	}
	l.cut = true
	return int(l.left), true
}

// copy passes one direction on until either side ends. spend is asked before each piece.
func (l *link) copy(to, from net.Conn, spend func(int) (int, bool)) {
	defer l.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if l.isDeaf() {
			continue // read, so that the other side notices nothing, and lost
		}
		if pass, cut := spend(n); cut {
			_, _ = to.Write(buf[:pass]) // it is cut either way
			if rand.IntN(2) == 0 {
				reset(to) // a connection may end by RST as well as by FIN
			}
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) close() {
	_ = l.client.Close() // it is gone either way
	_ = l.server.Close()
}

// reset closes a connection with RST.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // FIN does as well
	}
	_ = conn.Close()
}
