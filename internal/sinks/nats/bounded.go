package nats

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"

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
	// tlsFailed is given why there is no TLS; it may be nil. nats.go drops that error when it
	// connects again.
	tlsFailed func(err error)
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

// Write writes p. Where the server has closed the connection it reports success, as TCP does for
// what is written a moment earlier: Read returns why first, if the server reported that, and the
// client library does not read behind a failed Write.
func (b *boundedConn) Write(p []byte) (int, error) {
	if b.broken != nil {
		return 0, b.broken
	}
	if !b.answered { // set once, before there is another goroutine that reads
		b.answered = true
	}
	n, err := b.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return len(p), nil
	}
	return n, err
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
	err = fmt.Errorf("%w: no answer after the handshake: %w", nats.ErrTLS, err)
	b.reportTLS(err)
	return err
}

func (b *boundedConn) reportTLS(err error) {
	if b.tlsFailed != nil {
		b.tlsFailed(err)
	}
}

// Bounds of what a server may send. The sink reads answers, and single messages that are not larger
// than what it sends.
const (
	maxFrame   = 32 << 20
	maxControl = 1 << 20 // an INFO names all servers of a cluster
)

var (
	errUnbounded = errors.New("the server announces a message that is too large: it is not " +
		"believed")
	errAmbiguous = errors.New("the server sends a control line that the protocol does not allow: " +
		"it is not believed")
)

// protocol follows what a server sends, as far as the client library allocates memory by it.
type protocol struct {
	line    []byte // an incomplete control line
	payload int    // bytes of a message that are still to come
	// reported is given each error that the server reports. What it returns ends the connection.
	reported func(text string) error
}

// check follows the protocol through what was read.
func (c *protocol) check(p []byte) error {
	for len(p) > 0 {
		if c.payload > 0 {
			n := min(len(p), c.payload)
			p, c.payload = p[n:], c.payload-n
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.line = append(c.line, p...)
			if len(c.line) > maxControl {
				return errUnbounded
			}
			return nil
		}
		line := p[:end]
		if len(c.line) > 0 {
			line = append(c.line, line...)
		}
		size, err := sizeIn(line)
		if err == nil {
			err = c.report(line)
		}
		if err != nil {
			return err
		}
		p, c.line, c.payload = p[end+1:], c.line[:0], size
	}
	return nil
}

// report passes on what a control line says of an error.
func (c *protocol) report(line []byte) error {
	const kind = "-ERR"
	if c.reported == nil || len(line) < len(kind) || !isKind(line[:len(kind)], kind) {
		return nil
	}
	return c.reported(strings.Trim(string(line[len(kind):]), " \t\r'"))
}

// sizeIn returns how many bytes follow a control line. Lines in which the client library would read
// something else are refused: behind a \r in the middle it drops the last byte of the line, and a
// line without arguments continues for it behind the \n.
func sizeIn(line []byte) (int, error) {
	const lineEnd = 2
	line = bytes.TrimRight(line, "\r \t")
	kind, arguments := line, []byte(nil)
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		kind, arguments = line[:end], line[end+1:]
	}
	isMessage := isKind(kind, "MSG") || isKind(kind, "HMSG")
	switch {
	case !isMessage && !isKind(kind, "INFO") && !isKind(kind, "-ERR"):
		return 0, nil
	case len(arguments) == 0:
		return 0, errAmbiguous
	case !isMessage:
		return 0, nil
	case bytes.IndexByte(arguments, '\r') >= 0:
		return 0, errAmbiguous
	}
	last := arguments[bytes.LastIndexAny(arguments, " \t")+1:]
	size, err := strconv.ParseUint(string(last), 10, 31)
	if err != nil || size > maxFrame {
		return 0, errUnbounded
	}
	return int(size) + lineEnd, nil
}

func isKind(kind []byte, name string) bool { return bytes.EqualFold(kind, []byte(name)) }

var errCompressed = errors.New("the server sends a compressed WebSocket frame, which the bridge " +
	"has not offered: it is not believed")

// webSocket follows the frames that a server sends, and the protocol in them. The client library
// bounds a frame by itself, at 64 MiB or less, but inflates a compressed one without any bound.
type webSocket struct {
	protocol
	opened   bool   // the head of the HTTP response has ended
	response int    // its bytes until now
	head     []byte // an incomplete line of the response, or head of a frame
	control  bool   // the frame is none of data
	left     uint64 // bytes of the frame that are still to come
}

// check follows the frames through what was read.
func (w *webSocket) check(p []byte) error {
	for len(p) > 0 {
		n, err := 1, error(nil)
		switch {
		case !w.opened:
			err = w.readResponse(p[0])
		case w.left == 0:
			err = w.readHead(p[0])
		default:
			n = int(min(uint64(len(p)), w.left))
			if w.left -= uint64(n); !w.control {
				err = w.protocol.check(p[:n])
			}
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// readResponse looks for the empty line, as net/http does: behind \n, with \r or without.
func (w *webSocket) readResponse(b byte) error {
	if w.response++; w.response > maxControl {
		return errUnbounded
	}
	if b != '\n' {
		w.head = append(w.head, b)
		return nil
	}
	w.opened = len(w.head) == 0 || string(w.head) == "\r"
	w.head = w.head[:0]
	return nil
}

// readHead reads the head of a frame (RFC 6455, section 5.2).
func (w *webSocket) readHead(b byte) error {
	w.head = append(w.head, b)
	if len(w.head) < 2 {
		return nil
	}
	const compressed, control = 1 << 6, 1 << 3
	if w.head[0]&compressed != 0 {
		return errCompressed
	}
	size, long := uint64(w.head[1]&0x7f), w.head[2:]
	switch {
	case size == 126 && len(long) == 2:
		size = uint64(binary.BigEndian.Uint16(long))
	case size == 127 && len(long) == 8:
		size = binary.BigEndian.Uint64(long)
	case size >= 126:
		return nil // there is more of it
	}
	w.control, w.left, w.head = w.head[0]&control != 0, size, w.head[:0]
	return nil
}

// servers are those of a URL, as nats.go gets them.
type servers struct {
	url       string
	webSocket bool
	secure    bool // TLS begins when a WebSocket is dialled
}

// servers hides the TLS of WebSockets from nats.go, so that the dialer begins it. A dialer that
// skips it only when nats.go asks does not work there: wsInitHandshake (ws.go) then has no reader.
func (c *Options) servers() servers {
	var s servers
	urls := make([]string, len(c.Servers))
	for i, server := range c.Servers {
		// a comma is between two URLs for the client
		urls[i] = strings.ReplaceAll(strings.TrimSpace(string(server)), ",", "%2C")
		u, err := url.Parse(urls[i])
		if err != nil || u.Scheme != "ws" && u.Scheme != "wss" {
			continue
		}
		s.webSocket = true
		if u.Scheme == "wss" {
			s.secure = true
			u.Scheme, u.Host = "ws", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
			urls[i] = u.String()
		}
	}
	s.url, s.secure = strings.Join(urls, ","), s.webSocket && (s.secure || c.wantsTLS())
	return s
}

// connectedTo is the URL of the server, without secrets.
func (c *Options) connectedTo(conn *nats.Conn) string {
	server := conn.ConnectedUrlRedacted()
	if c.servers().secure {
		server = strings.Replace(server, "ws://", "wss://", 1)
	}
	return server
}
