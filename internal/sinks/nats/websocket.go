package nats

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
)

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
func (c *Connection) servers() servers {
	var s servers
	urls := strings.Split(c.URL, ",")
	for i, text := range urls {
		u, err := url.Parse(strings.TrimSpace(text))
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
	s.url, s.secure = strings.Join(urls, ","), s.webSocket && (s.secure || c.TLS != TLS{})
	return s
}

// connectedTo is the URL of the server, without secrets.
func (c *Connection) connectedTo(conn *nats.Conn) string {
	server := conn.ConnectedUrlRedacted()
	if c.servers().secure {
		server = strings.Replace(server, "ws://", "wss://", 1)
	}
	return server
}
