package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
)

// peer is the other end of a connection.
type peer struct {
	remote, local net.Addr

	once sync.Once
	own  bool // written once, by once
}

type peerKey struct{}

// withPeer is the server's ConnContext: a connection's user is asked for once, not by each request.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peer{remote: c.RemoteAddr(), local: c.LocalAddr()})
}

func peerOf(r *http.Request) *peer {
	p, _ := r.Context().Value(peerKey{}).(*peer)
	return p
}

// isOwnUser reports whether the process at the other end runs as this process's user. It is false
// where that can't be found out.
func (p *peer) isOwnUser() bool {
	if p == nil {
		return false
	}
	p.once.Do(func() {
		remote, err := netip.ParseAddrPort(p.remote.String())
		if err != nil {
			return
		}
		local, err := netip.ParseAddrPort(p.local.String())
		if err != nil {
			return
		}
		uid, found := userOf(remote, local)
		p.own = found && uid == os.Geteuid()
	})
	return p.own
}
