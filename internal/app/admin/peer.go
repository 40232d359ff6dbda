package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// peerConn is the other end of a connection.
type peerConn struct {
	remote, local net.Addr

	once sync.Once
	own  bool // written once, by once
}

type peerKey struct{}

// withPeer is the server's ConnContext: a connection's user is asked for once, not by each request.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peerConn{remote: c.RemoteAddr(), local: c.LocalAddr()})
}

func peerOf(r *http.Request) *peerConn {
	p, _ := r.Context().Value(peerKey{}).(*peerConn)
	return p
}

// isOwnUser reports whether the process at the other end runs as this process's user. It is false
// where that can't be found out.
func (p *peerConn) isOwnUser() bool {
	if p == nil {
		return false
	}
	p.once.Do(func() { p.own = IsOwnUser(p.remote, p.local) })
	return p.own
}
