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
// nats.go puts its own TLS above the connection that Dial returns, where the bounds are blind. But
// first it asks SkipTLSHandshake, at the moment at which TLS has to begin: before or behind INFO.
// The dialer then begins TLS itself, under the bounds, as nats.go would (makeTLSConn in nats.go).
//
// nats.go calls it from one goroutine at a time.
type dialer struct {
	ctx    context.Context //nolint:containedctx // the connection's life; nats.go hands in none
	config *Connection
	conn   *boundedConn // the last one
	server string       // the name that its certificate must have
	name   string       // of the last server that was dialled by a name
	failed error        // of the last attempt to dial
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: d.config.Timeout}).DialContext(d.ctx, network, address)
	if err != nil {
		d.failed = err
		return nil, err
	}
	d.conn, d.server = newBoundedConn(conn), d.serverAt(address)
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

// serverAt returns the name that the certificate of a server must have. The servers of a cluster
// are announced by their addresses, and often have no certificates for these: as with nats.go, they
// must have one for the name by which the bridge has found the cluster.
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
