package nats_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// wire is how a liar speaks with a sink. The server behind it has no TLS.
type wire struct {
	scheme   string
	settings *sinks.TLS
	first    bool // TLS begins before the server speaks
	server   func(*server.Options)
	target   func(*server.Options) string // the server's address for it
	// begin returns the client with its TLS, and what to write to and to read from in the protocol.
	begin func(from, to net.Conn) (client net.Conn, out io.Writer, in io.Reader, err error)
}

var plain = wire{
	scheme: "nats",
	server: func(*server.Options) {},
	target: clientPort,
	begin: func(from, to net.Conn) (net.Conn, io.Writer, io.Reader, error) {
		return from, from, to, nil
	},
}

func clientPort(o *server.Options) string { return net.JoinHostPort(o.Host, strconv.Itoa(o.Port)) }

// wires are those that are not plain.
func wires(t *testing.T) map[string]wire {
	a := newAuthority(t)
	return map[string]wire{
		"TLS": a.startTLS(""), "TLS first": a.tlsFirst(), "ws": overWebSocket(t, "ws", nil),
		"wss": overWebSocket(t, "wss", a),
	}
}

// startTLS speaks TLS behind the server's INFO, with some bytes of plain text between them.
func (a *authority) startTLS(between string) wire {
	config, w := a.config(), plain
	w.settings = &sinks.TLS{CAFile: a.caFile}
	w.begin = func(from, to net.Conn) (net.Conn, io.Writer, io.Reader, error) {
		in := bufio.NewReader(to)
		info, err := in.ReadString('\n')
		if err != nil {
			return nil, nil, nil, err
		}
		if _, err := io.WriteString(from, wantingTLS(info)+between); err != nil {
			return nil, nil, nil, err
		}
		client := tls.Server(from, config)
		return client, client, in, client.Handshake()
	}
	return w
}

func (a *authority) tlsFirst() wire {
	config, w := a.config(), plain
	w.settings, w.first = &sinks.TLS{CAFile: a.caFile}, true
	w.begin = func(from, to net.Conn) (net.Conn, io.Writer, io.Reader, error) {
		in := bufio.NewReader(to)
		info, err := in.ReadString('\n')
		if err != nil {
			return nil, nil, nil, err
		}
		client := tls.Server(from, config)
		_, err = io.WriteString(client, wantingTLS(info))
		return client, client, in, err
	}
	return w
}

func wantingTLS(info string) string {
	return strings.Replace(info, "{", `{"tls_required":true,`, 1)
}

// overWebSocket speaks WebSocket, in TLS with certificates of an authority.
func overWebSocket(t *testing.T, scheme string, a *authority) wire {
	w := wire{scheme: scheme}
	port := testkit.Port(t)
	w.server = func(o *server.Options) {
		o.Websocket = server.WebsocketOpts{Host: "127.0.0.1", Port: port, NoTLS: true}
	}
	w.target = func(o *server.Options) string { return fmt.Sprint("127.0.0.1:", port) }
	var config *tls.Config
	if a != nil {
		config, w.settings = a.config(), &sinks.TLS{CAFile: a.caFile}
	}
	w.begin = func(from, to net.Conn) (net.Conn, io.Writer, io.Reader, error) {
		client := from
		if config != nil {
			client = tls.Server(from, config)
		}
		f := &frames{in: bufio.NewReader(to), out: client}
		return client, f, f, nil
	}
	return w
}

// frames are those of a server's WebSocket.
type frames struct {
	in     *bufio.Reader
	out    io.Writer
	opened bool // the HTTP response was handed on
	left   int  // bytes of a frame
}

func (f *frames) Read(p []byte) (int, error) {
	for !f.opened {
		line, err := f.in.ReadString('\n')
		if err == nil {
			_, err = io.WriteString(f.out, line)
		}
		if err != nil {
			return 0, err
		}
		f.opened = line == "\r\n"
	}
	if f.left == 0 {
		var head [2]byte
		if _, err := io.ReadFull(f.in, head[:]); err != nil {
			return 0, err
		}
		f.left = int(head[1])
		long := map[int]int{126: 2, 127: 8}[f.left]
		if long > 0 {
			size := make([]byte, 8)
			if _, err := io.ReadFull(f.in, size[8-long:]); err != nil {
				return 0, err
			}
			f.left = int(binary.BigEndian.Uint64(size))
		}
	}
	n, err := f.in.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// Write makes a frame of p, unless it is one.
func (f *frames) Write(p []byte) (int, error) {
	if p[0] != compressedFrame {
		p = frame(0x82, p)
	}
	return f.out.Write(p)
}

const compressedFrame = 0xc2

func frame(kind byte, p []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{kind, 127}, uint64(len(p))), p...)
}

// bomb is a frame that inflates to 256 MiB.
func bomb() []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	for range 256 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
	_ = w.Flush()
	return frame(compressedFrame, b.Bytes())
}
