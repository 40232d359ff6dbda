package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// Access says who may read what shows the cluster, and who may change the running bridge.
type Access struct {
	// Token returns the bearer token that a caller must send. It is called for each request, so
	// that a token may be renewed. An error, or an empty token, refuses everybody. nil: nobody may.
	Token func() (string, error)
	// Remote admits who has the token, from any host. Without it only callers on this machine, that
	// reached it at a loopback address and not through a proxy, are admitted.
	Remote bool
	// OwnUser admits readers without the token whose connection belongs to a process of the user
	// that this process runs as. Commands need the token all the same. It must not be set in a pod:
	// there sidecars and debug containers share the loopback address and often the user.
	OwnUser bool
}

// admits returns why a request may not come in; nil when it may. Where the request comes from is
// checked first, so that a token is never tried from elsewhere.
func (s *Server) admits(r *http.Request) error {
	a := &s.config.Access
	if !a.Remote {
		if err := isLocal(r); err != nil {
			return err
		}
	}
	if a.Token == nil {
		return &refusal{http.StatusForbidden, "this needs a token, and the bridge has none: " +
			"set admin.tokenFile, or keep the state on disk"}
	}
	want, err := a.Token()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &refusal{http.StatusForbidden, "the bridge has no token yet: it makes one when " +
			"it has " +
			"opened its state; /readyz says what it waits for"}
	case err != nil || want == "":
		return &refusal{http.StatusForbidden, "the bridge can't use its own token: see its log"}
	}
	got, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return &refusal{http.StatusUnauthorized, "send the bridge's token as a bearer token in " +
			"Authorization: `bridge token` prints it"}
	}
	limiter := s.guesses.limiterFor(r)
	switch {
	case limiter.Tokens() < 1:
		return &refusal{http.StatusTooManyRequests, "too many wrong tokens from this address: " +
			"try again in a second"}
	case !sameToken(got, want):
		limiter.Allow()
		return &refusal{http.StatusUnauthorized, "the token is not the bridge's: " +
			"`bridge token` prints it"}
	}
	return nil
}

// sameToken compares in a time that does not depend on either.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// maxGuesses is how many wrong tokens one address may send, per second and at once.
const maxGuesses = 10

// maxGuessers bounds the addresses that are remembered. When there are more, all are forgotten.
const maxGuessers = 1000

// guesses counts wrong tokens by the address that they come from, so that one who guesses locks out
// nobody else.
type guesses struct {
	mu sync.Mutex
	// by address; guarded by mu.
	by map[netip.Addr]*rate.Limiter
}

func (g *guesses) limiterFor(r *http.Request) *rate.Limiter {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // else the zero address, for all of these
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.by) >= maxGuessers || g.by == nil {
		g.by = map[netip.Addr]*rate.Limiter{}
	}
	limiter := g.by[peer.Addr()]
	if limiter == nil {
		limiter = rate.NewLimiter(maxGuesses, maxGuesses)
		g.by[peer.Addr()] = limiter
	}
	return limiter
}

// peerConn is the other end of a connection.
type peerConn struct {
	remote, local net.Addr

	once sync.Once
	own  bool // written once, by once
}

type peerKey struct{}

// withPeer returns the server's ConnContext: a connection's user is asked for once, not by each
// request.
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

// IsOwnUser reports whether the process at the other end of a TCP connection on this machine runs
// as this process's user. remote and local are the addresses of this end. It is false where that
// can't be found out. In a pod it says little: sidecars and debug containers share the loopback
// address and often the user.
func IsOwnUser(remote, local net.Addr) bool {
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return false
	}
	uid, found := userOf(at, to)
	return found && uid == os.Geteuid()
}
