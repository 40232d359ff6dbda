package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// shown lets in whoever may see events and objects: who is on this machine, and, where Access lets others in, who has the token.
func (s *Server) shown(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.mayLook(r); err != nil {
			s.log.Debug("admin request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "host", r.Host, "err", err)
			s.refuse(w, err)
			return
		}
		next(w, r)
	})
}

func (s *Server) mayLook(r *http.Request) error {
	// What a page of another site makes a browser ask: it could not read the answer, but make the bridge work for it.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		return &refusal{http.StatusForbidden, "a page of another site may not ask for this"}
	}
	why := notFromHere(r)
	switch {
	case why == "":
		return nil
	case s.config.Access.Remote:
		return s.config.Access.admits(r)
	default:
		return &refusal{http.StatusForbidden, why}
	}
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
