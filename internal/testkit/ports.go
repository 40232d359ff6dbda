package testkit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Ports that are given out lie below those that the kernel gives to outgoing connections (32768 and
// up on Linux), so that no other program gets one while its listener is started again. They are
// in a block that belongs to this process for as long as it lives, so that tests that run at the
// same time never meet.
const (
	lowestPort = 30_000
	blocks     = 18
	blockSize  = 150
)

// ports are those of this process.
var ports struct {
	sync.Mutex
	owner net.Listener // at the block's first port: it makes the block ours
	first int
	last  int // that was given, counted from the first
}

// Address is one on this machine where nobody listens. No test that runs at the same time is given
// the same.
func Address(t testing.TB) string { return fmt.Sprint("127.0.0.1:", Port(t)) }

// Port is that of an Address.
func Port(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.owner == nil {
		takeBlock(t)
	}
	for range blockSize {
		// over again, when all were given: those of tests that have ended are free
		ports.last = ports.last%(blockSize-1) + 1
		if l := listen(ports.first + ports.last); l != nil {
			_ = l.Close()
			return ports.first + ports.last
		}
	}
	t.Fatal("all ports of this process are in use: make the blocks larger")
	return 0
}

func takeBlock(t testing.TB) {
	t.Helper()
	for _, block := range rand.Perm(blocks) {
		first := lowestPort + block*blockSize
		if l := listen(first); l != nil {
			ports.owner, ports.first = l, first
			return
		}
	}
	t.Fatalf("all %d blocks of ports from %d on are taken", blocks, lowestPort)
}

// listen is nil when somebody else does.
func listen(port int) net.Listener {
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)) //nolint:noctx // it does not wait
	if err != nil {
		return nil
	}
	return l
}

// pipeListener accepts connections that are pipes in memory.
type pipeListener struct {
	conns     chan net.Conn
	done      chan struct{}
	once      sync.Once
	transport *http.Transport
}

func newPipeListener() *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	l.transport = &http.Transport{DialContext: l.dial}
	return l
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) closeIdle() { l.transport.CloseIdleConnections() }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "kubernetes.test" }

// HTTP is a client that reaches the server, whatever host is asked for.
func (s *Server) HTTP() *http.Client { return &http.Client{Transport: s.pipe.transport} }

// URL is the server's address, for use with HTTP.
func (s *Server) URL() *url.URL { return &url.URL{Scheme: "http", Host: "kubernetes.test"} }

// RESTConfig is a client-go configuration that reaches the server.
func (s *Server) RESTConfig() *rest.Config {
	return &rest.Config{Host: s.URL().String(), Dial: s.pipe.dial}
}
