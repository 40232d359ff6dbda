package nats_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy is a network between the sink and the server that can stop to deliver without breaking
// connections.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex // guards what follows
	stalled bool
	muted   bool          // nothing comes back from the server
	slow    bool          // what comes back comes at 250 KB/s or less
	late    time.Duration // by which each answer of the server comes later
	conns   []net.Conn
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: strings.TrimPrefix(target, "nats://")}
	var running sync.WaitGroup
	running.Go(func() { p.accept(&running) })
	t.Cleanup(func() {
		_ = listener.Close()
		p.freeze(false)
		p.mute(false)
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) freeze(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = stalled
}

// mute stops what the server says, and nothing else.
func (p *proxy) mute(muted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = muted
}

// cut breaks all connections: what the server said while it was muted is lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns, p.muted = nil, false
}

func (p *proxy) slowDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = true
}

func (p *proxy) isSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

func (p *proxy) delayBy(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
}

func (p *proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

func (p *proxy) isStalled(fromServer bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalled || fromServer && p.muted
}

func (p *proxy) accept(running *sync.WaitGroup) {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, to)
		p.mu.Unlock()
		running.Go(func() { p.carry(to, from, false) })
		running.Go(func() { p.carry(from, to, true) })
	}
}

func (p *proxy) carry(to io.WriteCloser, from io.ReadCloser, fromServer bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		for p.isStalled(fromServer) {
			time.Sleep(5 * time.Millisecond)
		}
		part := buf
		if fromServer && p.isSlow() {
			time.Sleep(8 * time.Millisecond)
			part = buf[:2<<10]
		}
		n, err := from.Read(part)
		if fromServer {
			time.Sleep(p.delay())
		}
		for p.isStalled(fromServer) {
			time.Sleep(5 * time.Millisecond)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
