package admin

import (
	"net"
	"net/netip"
	"os"
)

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
