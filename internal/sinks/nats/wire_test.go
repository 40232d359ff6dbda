package nats_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// wire is how a liar speaks with a sink. The server behind it has no TLS.
type wire struct {
	scheme   string
	settings nats.TLS
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
	return map[string]wire{"TLS": a.startTLS(""), "TLS first": a.tlsFirst()}
}

// startTLS speaks TLS behind the server's INFO, with some bytes of plain text between them.
func (a *authority) startTLS(between string) wire {
	config, w := a.config(), plain
	w.settings = nats.TLS{CAFile: a.caFile}
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
	w.settings = nats.TLS{CAFile: a.caFile, HandshakeFirst: true}
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
