package testkit

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

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
