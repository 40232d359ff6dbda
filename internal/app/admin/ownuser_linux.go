package admin

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// userOf returns the user who owns the connected socket with the address at, whose other end is to,
// as the kernel lists it (proc_pid_net(5)).
func userOf(at, to netip.AddrPort) (uid int, found bool) {
	at, to = unmap(at), unmap(to)
	if at.Addr().Is4() {
		if uid, found = searchSockets("/proc/net/tcp", hexOf(at), hexOf(to)); found {
			return uid, true
		}
	}
	// A socket of the IPv6 family that talks IPv4 is in the other list.
	return searchSockets("/proc/net/tcp6", hexOf(mapped(at)), hexOf(mapped(to)))
}

func searchSockets(file, at, to string) (uid int, found bool) {
	list, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid …
		f := strings.Fields(lines.Text())
		// of any other state the list may have user 0 in place of the owner
		const established = "01"
		if len(f) < 8 || f[1] != at || f[2] != to || f[3] != established {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil
	}
	return 0, false
}

// hexOf writes an address as the kernel does: words of 32 bits in the machine's byte order.
func hexOf(a netip.AddrPort) string {
	var out strings.Builder
	for b := a.Addr().AsSlice(); len(b) > 0; b = b[4:] {
		fmt.Fprintf(&out, "%08X", binary.NativeEndian.Uint32(b))
	}
	fmt.Fprintf(&out, ":%04X", a.Port())
	return out.String()
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func mapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}
