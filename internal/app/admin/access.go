package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

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
		return &refusal{http.StatusForbidden, "the bridge has no token yet: it makes one when it " +
			"has opened its state; /readyz says what it waits for"}
	case err != nil || want == "":
		return &refusal{http.StatusForbidden, "the bridge can't use its own token: see its log"}
	}
	got, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return &refusal{http.StatusUnauthorized, "send the bridge's token as a bearer token in " +
			"Authorization: `bridge token` prints it"}
	}
	// Wrong ones are not limited: the right one would wait too, and it is too long to be guessed.
	if !sameToken(got, want) {
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

// refusal is why a request is not admitted.
type refusal struct {
	code int
	why  string
}

func (r *refusal) Error() string { return r.why }

// complaintEvery bounds how often the log reports refused requests: whoever is refused must not
// fill it.
const complaintEvery = time.Second

// reader guards what shows the cluster: /status, /tail, /object and the profiles.
func (s *Server) reader(next http.HandlerFunc) http.Handler {
	return s.guarded(next, s.mayRead)
}

// commander guards what changes the running bridge.
func (s *Server) commander(next http.HandlerFunc) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return s.guarded(next, func(r *http.Request) error {
		switch err := s.admits(r); {
		case err != nil:
			return err
		case crossOrigin.Check(r) != nil:
			return &refusal{http.StatusForbidden, "a page of another origin may not ask for this"}
		case !isJSON(r):
			return &refusal{http.StatusUnsupportedMediaType, "want Content-Type: application/json"}
		}
		return nil
	})
}

func (s *Server) guarded(next http.HandlerFunc, check func(*http.Request) error) http.Handler {
	complaints := rate.Sometimes{Interval: complaintEvery}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := check(r)
		if err == nil {
			next(w, r)
			return
		}
		complaints.Do(func() {
			s.log.Warn("admin request refused",
				"path", r.URL.Path, "remote", r.RemoteAddr, "host", r.Host, "err", err)
		})
		s.refuse(w, err)
	})
}

// mayRead returns why a request may not read, nil when it may.
func (s *Server) mayRead(r *http.Request) error {
	// A page of another site can make the browser send a request. It could not read the answer, but
	// it would make the bridge work.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" &&
		site != "same-origin" {
		return &refusal{http.StatusForbidden, "a page of another site may not ask for this"}
	}
	if s.config.Access.OwnUser && isLocal(r) == nil && peerOf(r).isOwnUser() {
		return nil
	}
	return s.admits(r)
}

// ownNames refuses requests under the name of another host while the server listens on loopback: a
// page that resolved its own name to 127.0.0.1 (DNS rebinding) sends that name. It can't send the
// literal address, so addresses pass, as probes and scrapers behind a local proxy use them.
func (s *Server) ownNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.onLoopback() && !isAddress(hostOf(r)) && !strings.EqualFold(hostOf(r), "localhost") {
			s.refuse(w, &refusal{http.StatusForbidden, needLoopbackName})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) onLoopback() bool {
	addr, ok := s.Addr().(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

const (
	needLocal = "this is open to the bridge's own machine only: use kubectl port-forward or " +
		"kubectl exec, or set admin.remote"
	needLoopbackName = "ask at a loopback address, such as http://127.0.0.1 or http://localhost"
	needNoProxy      = "this is not open through a proxy, which hides who asks: " +
		"connect directly, or set admin.remote"
)

// isLocal returns why a request is not from this machine; nil when it is.
func isLocal(r *http.Request) error {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !isThisMachine(peer.Addr()) {
		return &refusal{http.StatusForbidden, needLocal}
	}
	if name := forwardedBy(r.Header); name != "" {
		return &refusal{http.StatusForbidden, needNoProxy + " (header " + name + ")"}
	}
	host := hostOf(r)
	addr, err := netip.ParseAddr(host)
	if !strings.EqualFold(host, "localhost") && (err != nil || !isThisMachine(addr)) {
		return &refusal{http.StatusForbidden, needLoopbackName}
	}
	return nil
}

// forwardedBy returns the header by which a proxy shows itself; "" for none. Meshes deliver
// requests of other hosts from 127.0.0.1: Linkerd with l5d-*, Envoy with X-Envoy-*.
func forwardedBy(header http.Header) string {
	for name := range header {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip",
			strings.HasPrefix(name, "X-Forwarded-"),
			strings.HasPrefix(name, "X-Envoy-"),
			strings.HasPrefix(name, "L5d-"):
			return name
		}
	}
	return ""
}

// isThisMachine reports whether an address is that of this machine to itself. The rest of
// 127.0.0.0/8 is not: proxies of service meshes deliver requests of other hosts from there.
func isThisMachine(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || addr == netip.IPv6Loopback()
}

// hostOf returns the name or address that a request was sent to, without the port.
func hostOf(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// statusError is an error that says how the request is answered.
type statusError interface {
	error
	HTTPStatus() int
}

// refuse answers with an error as {"error": …}.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if r, ok := errors.AsType[*refusal](err); ok {
		code = r.code
	} else if e, ok := errors.AsType[statusError](err); ok {
		code = e.HTTPStatus()
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="bridge"`)
	}
	body, _ := json.Marshal(map[string]string{"error": err.Error()}) // two strings always encode
	s.answer(w, code, "application/json", string(body)+"\n")
}
