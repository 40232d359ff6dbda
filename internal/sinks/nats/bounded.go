package nats

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/nats-io/nats.go"
)

// boundedConn checks what a server sends before the client library reads it. That library allocates
// as much memory as the server announces. The check sees plain text: TLS is below it.
//
// A server may ask for TLS with its first line, INFO. Until the client answers that line, it gets
// no byte behind it. Otherwise somebody on the network could put commands behind INFO, and the
// client would read them as if they had come by TLS (STARTTLS injection).
type boundedConn struct {
	net.Conn                      // the TLS connection, once there is one
	in       *bufio.Reader        // of Conn
	check    func(p []byte) error // is given all that was read, in order
	answered bool                 // the client has written something
	unheard  bool                 // TLS began, and nothing was read since
	broken   error                // why there is no TLS; for the next Read or Write
}

func newBoundedConn(conn net.Conn, check func(p []byte) error) *boundedConn {
	const size = 32 << 10 // as nats.go reads: then its reads are not copied
	return &boundedConn{Conn: conn, in: bufio.NewReaderSize(conn, size), check: check}
}

// startTLS makes the connection one of TLS.
func (b *boundedConn) startTLS(ctx context.Context, config *tls.Config) error {
	if n := b.in.Buffered(); n > 0 {
		return fmt.Errorf("%w: %d bytes of plain text came where TLS has to begin: somebody on "+
			"the network may have put them there", nats.ErrTLS, n)
	}
	conn := tls.Client(b.Conn, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%w: %w", nats.ErrTLS, err)
	}
	b.Conn, b.unheard = conn, true
	b.in.Reset(conn)
	return nil
}

func (b *boundedConn) Write(p []byte) (int, error) {
	if b.broken != nil {
		return 0, b.broken
	}
	if !b.answered { // set once, before there is another goroutine that reads
		b.answered = true
	}
	return b.Conn.Write(p)
}

func (b *boundedConn) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if bad := b.check(p[:n]); bad != nil {
		_ = b.Close()
		return 0, bad
	}
	return n, err
}

func (b *boundedConn) read(p []byte) (int, error) {
	if b.broken != nil {
		return 0, b.broken
	}
	if !b.answered { // no more than a line
		if _, err := b.in.Peek(1); err != nil {
			return 0, b.explained(err)
		}
		here, _ := b.in.Peek(b.in.Buffered())
		if end := bytes.IndexByte(here, '\n') + 1; end > 0 {
			p = p[:min(end, len(p))]
		}
	}
	n, err := b.in.Read(p)
	if n > 0 {
		b.unheard = false
	}
	return n, b.explained(err)
}

// explained says of an error right after the handshake what it may mean: with TLS 1.3 a server that
// refuses the client's certificate does so when the client takes the handshake for done.
func (b *boundedConn) explained(err error) error {
	if err == nil || !b.unheard {
		return err
	}
	return fmt.Errorf("%w: no answer after the handshake: %w", nats.ErrTLS, err)
}
