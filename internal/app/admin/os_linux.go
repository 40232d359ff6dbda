package admin

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
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

// reserve is a listener that accepts one connection more when the process has no file descriptor
// left, so that probes are answered. It holds a descriptor for that connection, and takes it back
// when the connection ends. Accept has one caller.
type reserve struct {
	*net.TCPListener
	mu    sync.Mutex
	spare *os.File // nil while a connection uses it, or another file took it
}

// withReserve takes a spare descriptor for a listener.
func withReserve(l net.Listener) net.Listener {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return l
	}
	r := &reserve{TCPListener: tcp}
	r.refill()
	return r
}

// Accept waits for the next connection.
func (r *reserve) Accept() (net.Conn, error) {
	conn, err := r.TCPListener.Accept()
	if err == nil {
		r.refill()
		return conn, nil
	}
	// The kernel refuses before it looks for a connection. Without one, the descriptor stays here.
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !r.pending() || !r.release() {
		return nil, err
	}
	if conn, err = r.TCPListener.Accept(); err != nil {
		r.refill()
		return nil, err
	}
	return &lastConn{Conn: conn, reserve: r}, nil
}

// pending reports whether a connection waits.
func (r *reserve) pending() (waits bool) {
	raw, err := r.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return waits && err == nil
}

// refill takes the spare descriptor, unless it is there or there is none.
func (r *reserve) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spare == nil {
		r.spare, _ = os.Open(os.DevNull)
	}
}

// release gives the spare descriptor away, and reports whether there was one.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.spare != nil && r.spare.Close() == nil
	r.spare = nil
	return had
}

// Close closes the listener and the spare descriptor.
func (r *reserve) Close() error {
	r.release()
	return r.TCPListener.Close()
}

// lastConn is a connection that uses the spare descriptor.
type lastConn struct {
	net.Conn
	reserve *reserve
}

// Close closes the connection and takes the descriptor back.
func (c *lastConn) Close() error {
	err := c.Conn.Close()
	c.reserve.refill()
	return err
}
