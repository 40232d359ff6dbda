package admin

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

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
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor fits
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
