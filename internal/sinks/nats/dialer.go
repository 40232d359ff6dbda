package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// dialer is the nats.CustomDialer of all connections: each one is bounded, and ends with a context.
//
// nats.go would put its own TLS above the connection that Dial returns, and boundedConn would see
// what is encrypted. But before that it calls SkipTLSHandshake, at the moment at which TLS has to
// begin: before INFO or behind it. The dialer then begins TLS itself, below the check, in the way
// of makeTLSConn in nats.go. With WebSockets TLS begins in Dial: see Connection.servers.
//
// nats.go calls it from one goroutine at a time.
type dialer struct {
	ctx     context.Context //nolint:containedctx // the connection's life; nats.go hands in none
	config  *Connection
	servers servers
	conn    *boundedConn // the last one
	server  string       // the name that its certificate must have
	name    string       // of the last server that was dialled by a name
	failed  error        // of the last attempt to dial
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if d.conn != nil {
		_ = d.conn.Close() // nats.go forgets to, where it could not reconnect (doReconnect)
	}
	conn, err := (&net.Dialer{Timeout: d.config.Timeout}).DialContext(d.ctx, network, address)
	if err != nil {
		d.failed = err
		return nil, err
	}
	check := new(protocol).check
	if d.servers.webSocket {
		check = new(webSocket).check
	}
	d.conn, d.server = newBoundedConn(conn, check), d.serverAt(address)
	if d.servers.secure {
		if err := d.startTLS(); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return d.conn, nil
}

// SkipTLSHandshake is called by nats.go where TLS has to begin, on the connection that was dialled
// last. It has no way to return an error: nats.go gets that from its next Read or Write.
func (d *dialer) SkipTLSHandshake() bool {
	if err := d.startTLS(); err != nil {
		d.conn.broken = err
		_ = d.conn.Close()
	}
	return true
}

func (d *dialer) startTLS() error {
	config, err := d.config.TLS.config(d.server)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.config.Timeout)
	defer cancel()
	return d.conn.startTLS(ctx, config)
}

// serverAt returns the name that the certificate of a server must have, unless TLS.ServerName says
// it. Servers of a cluster announce each other by IP addresses, and often have no certificates for
// these. As with nats.go, they must have one for the name by which the bridge found the cluster.
func (d *dialer) serverAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return address
	case net.ParseIP(host) == nil:
		d.name = host
		return host
	case d.config.names(host):
		return host
	default:
		return cmp.Or(d.name, host)
	}
}

// names reports whether a host is one of the URL's.
func (c *Connection) names(host string) bool {
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err == nil && u.Hostname() == host {
			return true
		}
	}
	return false
}

// config is that of a connection with a server. The files are read for each connection, since
// certificates are rotated.
func (t *TLS) config(server string) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: cmp.Or(t.ServerName, server),
		InsecureSkipVerify: t.Insecure,
	}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("CA file %s: no certificate is in it", t.CAFile)
		}
	}
	if t.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s: %w", t.CertFile, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
