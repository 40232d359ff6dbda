//go:build !linux

package admin

import (
	"net"
	"net/netip"
)

// userOf can't find out who owns a connection here, so readers need the token.
func userOf(_, _ netip.AddrPort) (uid int, found bool) { return 0, false }

// withReserve returns the listener as it is.
func withReserve(l net.Listener) net.Listener { return l }
