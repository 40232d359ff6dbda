package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Guard lets a request through to next, or refuses it. It is put around what shows events and objects.
type Guard func(next http.Handler) http.Handler

// fromHere is the Guard that lets in whoever is on this machine, and nobody else. It is the default.
func (s *Server) fromHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := notFromHere(r); why != "" {
			s.log.Debug("admin request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "host", r.Host, "reason", why)
			s.text(w, http.StatusForbidden, why+"\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// notFromHere says why a request can't be taken for one of this machine; "" when it can.
func notFromHere(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !onlyHere(peer.Addr()) {
		return "events and objects are shown on this machine only: use the admin address there, or kubectl port-forward"
	}
	// A page elsewhere that had its own name resolved to 127.0.0.1 (DNS rebinding) says that name.
	if !namesThisMachine(r.Host) {
		return "events and objects are shown at a loopback address only, such as http://127.0.0.1 or http://localhost"
	}
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") {
			return "events and objects are not shown through a proxy: who looks can't be told"
		}
	}
	return ""
}

// onlyHere says whether an address is that of somebody on this machine. Others of 127.0.0.0/8 are not: proxies of service meshes pass
// on requests from elsewhere by them.
func onlyHere(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || addr == netip.IPv6Loopback()
}

func namesThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && onlyHere(addr)
}

// sameSite refuses what a page of another site makes a browser ask: it could not read the answer, but make the bridge work for it.
func (s *Server) sameSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
			next.ServeHTTP(w, r)
		default:
			s.text(w, http.StatusForbidden, "a page of another site may not ask for this\n")
		}
	})
}
