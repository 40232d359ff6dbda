package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Access says who may use what changes a running bridge, or shows objects.
type Access struct {
	// Token gives what a caller has to show as its bearer token. It is asked for each request, so that a token may be renewed; an error, or an
	// empty token, refuses everybody. nil: nobody may.
	Token func() (string, error)
	// Remote lets in whoever has the token, from any host. Else only callers on this machine, that reached it by a loopback address, are let in.
	Remote bool
}

// refusal is why a request is not let in.
type refusal struct {
	code int
	why  string
}

func (r *refusal) Error() string { return r.why }

// complaintEvery bounds how often the log tells of refused requests: whoever is refused must not fill it.
const complaintEvery = time.Second

// guarded lets in only who may. Where the request comes from is looked at first, so that a token is never tried from elsewhere; a browser
// that was led here by a foreign page is refused by what it says of itself: the Host that it resolved (DNS rebinding), the page's Origin, or a
// body that a form can send.
func (s *Server) guarded(next http.HandlerFunc) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	complaints := rate.Sometimes{Interval: complaintEvery}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.config.Access.admits(r)
		if err == nil && crossOrigin.Check(r) != nil {
			err = &refusal{http.StatusForbidden, "a page of another origin may not ask for this"}
		}
		if err == nil && r.Method != http.MethodGet && !isJSON(r) {
			err = &refusal{http.StatusUnsupportedMediaType, "want Content-Type: application/json"}
		}
		if err == nil {
			next(w, r)
			return
		}
		complaints.Do(func() {
			s.log.Warn("admin request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "err", err)
		})
		s.refuse(w, err)
	})
}

// admits says why a request may not come in; nil when it may.
func (a *Access) admits(r *http.Request) error {
	if !a.Remote {
		if err := isLocal(r); err != nil {
			return err
		}
	}
	if a.Token == nil {
		return &refusal{http.StatusForbidden, "this bridge takes no commands: it has no token (admin.tokenFile, or a state directory to keep one in)"}
	}
	want, err := a.Token()
	if err != nil || want == "" {
		return &refusal{http.StatusForbidden, "the bridge can't read its own token, so it takes no commands: see its log"}
	}
	got, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !found:
		return &refusal{http.StatusUnauthorized, "want the bridge's token: as a bearer token in Authorization"}
	case !sameToken(got, want):
		return &refusal{http.StatusUnauthorized, "the token is not the bridge's"}
	}
	return nil
}

// sameToken compares in a time that tells nothing of either.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// isLocal says why a request is not from this machine; nil when it is.
func isLocal(r *http.Request) error {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return &refusal{http.StatusForbidden, "commands are taken from this machine only (admin.remote lets others in)"}
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(header) != "" {
			return &refusal{http.StatusForbidden, "commands are not taken through a proxy: who asks can't be told (admin.remote lets others in)"}
		}
	}
	if !isLoopbackName(r.Host) {
		return &refusal{http.StatusForbidden, "commands are taken at a loopback address only, such as 127.0.0.1 or localhost"}
	}
	return nil
}

// isLoopbackName says whether a Host header names this machine to itself. A page that had its own name resolved to 127.0.0.1 says that name.
func isLoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// refuse answers with an error as {"error": …}.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if r, ok := errors.AsType[*refusal](err); ok {
		code = r.code
	} else if e, ok := errors.AsType[*Error](err); ok {
		code = e.Code
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="bridge"`)
	}
	body, _ := json.Marshal(map[string]string{"error": err.Error()}) // two strings always encode
	s.answer(w, code, "application/json", string(body)+"\n")
}
