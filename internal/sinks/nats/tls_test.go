package nats_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// authority is a CA of a test, with the files it has written.
type authority struct {
	ca     *testkit.CA
	t      testing.TB
	caFile string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{ca: testkit.NewCA(t), t: t, caFile: filepath.Join(t.TempDir(), "ca.pem")}
	a.write(a.caFile, "CERTIFICATE", a.ca.DER)
	return a
}

// issue writes a certificate and its key.
func (a *authority) issue(names ...string) (certFile, keyFile string) {
	a.t.Helper()
	cert := a.ca.Issue(a.t, names...)
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	keyDER, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	testkit.OK(a.t, err)
	a.write(certFile, "CERTIFICATE", cert.Certificate[0])
	a.write(keyFile, "PRIVATE KEY", keyDER)
	return certFile, keyFile
}

func (a *authority) write(path, kind string, der []byte) {
	a.t.Helper()
	testkit.OK(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// config is that of a server, with a certificate as Issue makes it.
func (a *authority) config(names ...string) *tls.Config {
	a.t.Helper()
	return &tls.Config{
		Certificates: []tls.Certificate{a.ca.Issue(a.t, names...)}, MinVersion: tls.VersionTLS12,
	}
}

// mutualConfig asks for client certificates of the same authority.
func (a *authority) mutualConfig() *tls.Config {
	config := a.config()
	config.ClientCAs, config.ClientAuth = a.ca.Pool, tls.RequireAndVerifyClientCert
	return config
}

// server options with TLS, which asks for client certificates of the same authority when mutual is
// set.
func (a *authority) server(mutual, handshakeFirst bool) func(*server.Options) {
	config := a.config()
	if mutual {
		config = a.mutualConfig()
	}
	return func(o *server.Options) {
		o.TLSConfig, o.TLSTimeout, o.TLSHandshakeFirst = config, 5, handshakeFirst
	}
}

func withTLS(section sinks.TLS) func(*nats.Options) {
	return func(c *nats.Options) { c.TLS = &section }
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	certFile, keyFile := a.issue()
	for name, c := range map[string]struct {
		mutual, first bool
		settings      sinks.TLS
	}{
		"with a CA": {false, false, sinks.TLS{CAFile: a.caFile}},
		"with a client certificate": {true, false, sinks.TLS{
			CAFile: a.caFile, CertFile: certFile,
			KeyFile: keyFile,
		}},
		"before the greeting":  {false, true, sinks.TLS{CAFile: a.caFile}},
		"with any certificate": {false, false, sinks.TLS{InsecureSkipVerify: true}},
		"with the configured name": {false, false, sinks.TLS{
			CAFile:     a.caFile,
			ServerName: "127.0.0.1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t, a.server(c.mutual, c.first))
			sink := ts.openSink(withTLS(c.settings), func(o *nats.Options) { o.TLSFirst = c.first })
			mustStore(t, sink, ev("a", 1))
		})
	}
}

// TLS of WebSockets, as a server has it, and with all that a URL may have.
func TestWebSocket(t *testing.T) {
	a := newAuthority(t)
	certFile, keyFile := a.issue()
	mutual := sinks.TLS{CAFile: a.caFile, CertFile: certFile, KeyFile: keyFile}
	for name, c := range map[string]struct {
		scheme   string
		settings sinks.TLS
	}{
		"without TLS":               {"ws", sinks.TLS{}},
		"with a client certificate": {"wss", mutual},
		"by the section only":       {"ws", mutual},
	} {
		t.Run(name, func(t *testing.T) {
			port := testkit.Port(t)
			ts := newTestServer(t, withUser("bridge", "s3/cr@t", nil), func(o *server.Options) {
				o.Websocket = server.WebsocketOpts{Host: "127.0.0.1", Port: port, NoTLS: true}
				if c.settings != (sinks.TLS{}) {
					o.Websocket.NoTLS, o.Websocket.TLSConfig = false, a.mutualConfig()
				}
			})
			url := fmt.Sprintf("%s://bridge:s3%%2Fcr%%40t@127.0.0.1:%d", c.scheme, port)
			sink := ts.openSink(withTLS(c.settings),
				func(cfg *nats.Options) { cfg.Servers = addresses(url) })
			mustStore(t, sink, ev("a", 1))
			ts.restart()
			storePatiently(t, sink, ev("a", 2))
		})
	}
}

func TestTLSErrors(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	for name, c := range map[string]struct {
		server   func(*server.Options)
		settings sinks.TLS
		says     string
	}{
		"unknown CA": {
			a.server(false, false),
			sinks.TLS{CAFile: stranger.caFile},
			"unknown authority",
		},
		"system's CAs": {a.server(false, false), sinks.TLS{}, "certificate"},
		"another name": {a.server(false, false), sinks.TLS{
			CAFile:     a.caFile,
			ServerName: "nats.example.com",
		}, "nats.example.com"},
		"server without it": {
			func(*server.Options) {},
			sinks.TLS{CAFile: a.caFile},
			"secure connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t, c.server)
			err := ts.newSink(withTLS(c.settings)).Open(t.Context())
			wantClass(t, err, sinks.Refused)
			wantMentions(t, err, c.says)
		})
	}
}

// The servers of a cluster announce each other by addresses, for which they have no certificates.
func TestClusterOfOneName(t *testing.T) {
	a := newAuthority(t)
	config := a.config("localhost")
	ports := [2]int{testkit.Port(t), testkit.Port(t)}
	var servers [2]*testServer
	for i := range servers {
		servers[i] = newTestServer(t, func(o *server.Options) {
			o.JetStream, o.TLSConfig, o.TLSTimeout = false, config, 5
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = server.RoutesFromStr(fmt.Sprintf("nats://127.0.0.1:%d", ports[1-i]))
		})
	}
	await(t, "the servers know each other", func() bool {
		return servers[0].s.NumRoutes() > 0 && servers[1].s.NumRoutes() > 0
	})
	sink := openOver(t, fmt.Sprintf("tls://localhost:%d", servers[0].opts.Port),
		withTLS(sinks.TLS{CAFile: a.caFile}), func(c *nats.Options) { c.Mode = nats.Core })
	mustStore(t, sink, ev("a", 1))
	servers[0].stop()
	storePatiently(t, sink, ev("a", 2))
}

// The files are read again for each connection.
func TestCertificateRotation(t *testing.T) {
	a, next, dir := newAuthority(t), newAuthority(t), t.TempDir()
	ts := newTestServer(t, a.server(true, false))
	certFile, keyFile := a.ca.Files(t, dir)
	sink := ts.openSink(withTLS(sinks.TLS{CAFile: a.caFile, CertFile: certFile, KeyFile: keyFile}))
	mustStore(t, sink, ev("a", 1))
	ts.stop()
	text, err := os.ReadFile(next.caFile)
	if err == nil {
		err = os.WriteFile(a.caFile, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	next.ca.Files(t, dir)
	next.server(true, false)(&ts.opts)
	ts.start()
	storePatiently(t, sink, ev("a", 2))
}

// Somebody on the network puts plain text where TLS has to begin: the sink must not take that for
// something the server has said.
func TestPlainTextBeforeTLS(t *testing.T) {
	a := newAuthority(t)
	for name, text := range map[string]string{
		"a command":             "PONG\r\n",
		"a message":             "MSG _INBOX.x 1 2\r\n{}\r\n",
		"half a line":           "P",
		"a line without an end": strings.Repeat("x", 8<<10),
	} {
		t.Run(name, func(t *testing.T) {
			w := a.startTLS(text)
			ts := newTestServer(t, w.server)
			l := newLiarOver(t, w, w.target(&ts.opts))
			err := ts.newSink(l.use).Open(t.Context())
			if err == nil {
				t.Fatal("it has opened")
			}
			wantMentions(t, err, "plain text")
		})
	}
}
