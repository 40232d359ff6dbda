package sinkmaker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// certificate writes a certificate with its key, and gives their paths.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

func newMaker(t *testing.T) *Maker {
	return &Maker{
		Cluster: "dev", StateDir: t.TempDir(), Out: io.Discard,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// Every kind of sink with every kind of setting is taken by its package: what config accepts, the
// sinks do too.
func TestExampleSinks(t *testing.T) {
	cert, key := certificate(t)
	text, err := os.ReadFile("../../../config/bridge.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	creds := filepath.Join(t.TempDir(), "nats.creds")
	if err := os.WriteFile(creds, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer("/etc/bridge/ca.pem", cert, "/etc/bridge/tls.crt", cert, "/etc/bridge/tls.key", key,
		"/etc/bridge/kafka-password", password, "/etc/bridge/nats.creds", creds, "/var/lib/bridge/nats", t.TempDir()).Replace(string(text))
	c, err := config.Load(config.Options{File: "example.yaml", Data: []byte(replaced)})
	if err != nil {
		t.Fatal(err)
	}
	m := newMaker(t)
	for i := range c.Sinks {
		sink, broker, err := m.Make(&c.Sinks[i])
		if err != nil {
			t.Errorf("%s: %v", c.Sinks[i].Name, err)
			continue
		}
		ok := false
		switch sink.(type) {
		case *nats.Sink:
			ok = c.Sinks[i].NATS != nil
		case *kafka.Sink:
			ok = c.Sinks[i].Kafka != nil
		case *http.Sink:
			ok = c.Sinks[i].HTTP != nil
		case *history.Sink:
			ok = c.Sinks[i].History != nil
		case *stdout.Sink:
			ok = c.Sinks[i].Stdout != nil
		}
		if embedded := c.Sinks[i].NATS != nil && c.Sinks[i].NATS.Embedded; !ok || embedded != (broker != nil) {
			t.Errorf("%s is a %T with broker %v", c.Sinks[i].Name, sink, broker)
		}
	}
}

// The default makes its sink.
func TestDefaultSink(t *testing.T) {
	c := config.Default()
	if _, broker, err := newMaker(t).Make(&c.Sinks[0]); err != nil || broker == nil {
		t.Errorf("broker %v, %v", broker, err)
	}
}

// Two sinks of a kind share a registry.
func TestSharedRegistry(t *testing.T) {
	m := newMaker(t)
	for _, name := range []string{"a", "b"} {
		for _, s := range []config.Sink{
			{Name: name, NATS: &config.NATS{Servers: []config.URL{"nats://h:1"}}},
			{Name: name + "k", Kafka: &config.Kafka{Brokers: []string{"h:1"}, Topic: "t"}},
		} {
			if _, _, err := m.Make(&s); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

// No limit in the configuration is none in the stream.
func TestUnlimitedStream(t *testing.T) {
	if got := natsStream(&config.NATS{}); got.MaxAge >= 0 {
		t.Errorf("0 became the sink's default: %v", got.MaxAge)
	}
	if got := natsStream(&config.NATS{Stream: config.Stream{MaxAge: time.Hour}}); got.MaxAge != time.Hour {
		t.Errorf("got %v", got.MaxAge)
	}
}

// The hint of an embedded server names the subjects that the configuration has.
func TestAllSubjects(t *testing.T) {
	for template, want := range map[string]string{
		config.Default().Sinks[0].NATS.Subject: "k8s.>",
		"shop.{cluster}-{name}":                "shop.>",
		"shop.k8s-{name}":                      "shop.>",
		"{cluster}.{name}":                     ">",
		"one.subject":                          "one.subject",
	} {
		if got := allSubjects(template); got != want {
			t.Errorf("%s: got %s, want %s", template, got, want)
		}
	}
}

// A renewed certificate is read again.
func TestRenewedCertificate(t *testing.T) {
	cert, key := certificate(t)
	c, err := tlsConfig(&config.TLS{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "broker"})
	if err != nil || c.RootCAs == nil || c.ServerName != "broker" {
		t.Fatal(c, err)
	}
	first, err := c.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	newCert, newKey := certificate(t)
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	second, err := c.GetClientCertificate(nil)
	if err != nil || string(first.Certificate[0]) == string(second.Certificate[0]) {
		t.Errorf("the old certificate is still used: %v", err)
	}
}

// Wrong TLS files are reported plainly.
func TestWrongTLSFiles(t *testing.T) {
	cert, key := certificate(t)
	for want, c := range map[string]*config.TLS{
		"tls.caFile: open ":                          {CAFile: cert + "-missing"},
		"tls.caFile: there is no certificate in PEM": {CAFile: key},
		"tls.certFile: certificate ":                 {CertFile: key, KeyFile: cert},
	} {
		if _, err := tlsConfig(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if c, err := tlsConfig(nil); c != nil || err != nil {
		t.Errorf("no section: %v, %v", c, err)
	}
}
