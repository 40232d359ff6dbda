package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/file"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
	"github.com/kubebridge/bridge/internal/testkit"
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

func makerEnv(t *testing.T) sinks.Env {
	return sinks.Env{
		Cluster: "dev", StateDir: t.TempDir(), Out: io.Discard,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// Every kind of sink with every kind of setting is taken by its package: what config accepts, the
// sinks do too.
func TestExampleSinks(t *testing.T) {
	cert, key := certificate(t)
	text, err := os.ReadFile("../../config/bridge.example.yaml")
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
	env := makerEnv(t)
	for i := range c.Sinks {
		sink, broker, err := newSink(&c.Sinks[i], env)
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
		case *file.Sink:
			ok = c.Sinks[i].File != nil
		}
		if embedded := c.Sinks[i].NATS != nil && c.Sinks[i].NATS.Embedded; !ok || embedded != (broker != nil) {
			t.Errorf("%s is a %T with broker %v", c.Sinks[i].Name, sink, broker)
		}
	}
}

// The default makes its sink.
func TestDefaultSink(t *testing.T) {
	c := config.Default()
	if _, broker, err := newSink(&c.Sinks[0], makerEnv(t)); err != nil || broker == nil {
		t.Errorf("broker %v, %v", broker, err)
	}
}

// Two sinks of a kind share a registry.
func TestSharedRegistry(t *testing.T) {
	env := makerEnv(t)
	for _, name := range []string{"a", "b"} {
		for _, s := range []config.Sink{
			{Name: name, Encoding: sinks.Binary, NATS: new(testkit.WithDefaults(nats.Config{Servers: []settings.URL{"nats://h:1"}}))},
			{Name: name + "k", Encoding: sinks.Binary, Kafka: new(testkit.WithDefaults(kafka.Config{Brokers: []string{"h:1"}, Topic: "t"}))},
		} {
			if _, _, err := newSink(&s, env); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

// TestKafkaClientID reads the first request that a broker gets.
func TestKafkaClientID(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.OK(t, err)
	defer listener.Close()
	s := config.Sink{Name: "lake", Encoding: sinks.Binary, Kafka: new(testkit.WithDefaults(kafka.Config{
		Brokers: []string{listener.Addr().String()}, Topic: "t", ClientID: "cluster-a",
	}))}
	sink, _, err := newSink(&s, makerEnv(t))
	testkit.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- sink.Open(ctx) }()
	conn, err := listener.Accept()
	testkit.OK(t, err)
	defer conn.Close()
	header := make([]byte, 14) // size, key, version, correlation, length of the client's id
	_, err = io.ReadFull(conn, header)
	testkit.OK(t, err)
	name := make([]byte, binary.BigEndian.Uint16(header[12:]))
	_, err = io.ReadFull(conn, name)
	testkit.OK(t, err)
	if string(name) != "cluster-a" {
		t.Errorf("the broker knows it as %q", name)
	}
	cancel()
	if err := <-opened; err == nil {
		t.Error("it opened without a broker")
	}
	testkit.OK(t, sink.Close())
}
