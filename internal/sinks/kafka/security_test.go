package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestMutualTLS(t *testing.T) {
	ca := testkit.NewCA(t)
	c := newCluster(t, kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t)}, ClientCAs: ca.Pool,
		ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	mine := &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.Issue(t)}}
	s := openSink(t, c, func(c *kafka.Options) { c.Connection.TLS = mine })
	publish(t, s, podEvents("web", 1, 3)...)
	if got := readAll(t, c, podsTopic, kgo.DialTLSConfig(mine)); len(got) != 3 {
		t.Errorf("%d records", len(got))
	}
}

// Certificates that are replaced while the sink runs: the broker comes to trust another authority,
// and the next connection has the certificate that the files then hold.
func TestCertificateRotation(t *testing.T) {
	ca, next, dir := testkit.NewCA(t), testkit.NewCA(t), t.TempDir()
	own := []tls.Certificate{ca.Issue(t)}
	var trusted atomic.Pointer[x509.CertPool]
	trusted.Store(ca.Pool)
	c := newCluster(t, kfake.TLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: own, ClientCAs: trusted.Load(), ClientAuth: tls.RequireAndVerifyClientCert}, nil
	}}))
	section := sinks.TLS{CAFile: filepath.Join(dir, "ca.pem")}
	section.CertFile, section.KeyFile = ca.Files(t, dir)
	testkit.OK(t, os.WriteFile(section.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.DER}), 0o600))
	config, err := section.Load()
	testkit.OK(t, err)
	n := new(network)
	s := openSink(t, c, n.use, func(c *kafka.Options) { c.Connection.TLS = config })
	publish(t, s, podEvents("web", 1, 3)...)
	reconnect := func() error {
		n.setDown(true)
		n.setDown(false)
		messages := podEvents("web", 4, 4)
		s.Publish(t.Context(), messages)
		return messages[0].Err
	}
	trusted.Store(next.Pool)
	if err := reconnect(); err == nil {
		t.Error("the broker takes the old certificate")
	}
	next.Files(t, dir)
	testkit.Eventually(t, "it is stored with the new certificate", func() bool { return reconnect() == nil })
}

func TestTLSErrors(t *testing.T) {
	ca, other := testkit.NewCA(t), testkit.NewCA(t)
	c := newCluster(t, kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t)}, ClientCAs: ca.Pool,
		ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	for name, config := range map[string]*tls.Config{
		"the broker's authority is not trusted": {
			RootCAs:      other.Pool,
			Certificates: []tls.Certificate{ca.Issue(t)},
		},
		"the client has no certificate": {RootCAs: ca.Pool},
		"the client's certificate is another's": {
			RootCAs:      ca.Pool,
			Certificates: []tls.Certificate{other.Issue(t)},
		},
		"the name is another": {
			RootCAs:      ca.Pool,
			Certificates: []tls.Certificate{ca.Issue(t)}, ServerName: "elsewhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireOpenError(t, newSink(t, c, func(c *kafka.Options) { c.Connection.TLS = config }),
				c.ListenAddrs()[0], "check the sink's tls settings")
		})
	}
	t.Run("the sink does not use TLS", func(t *testing.T) {
		requireOpenError(t, newSink(t, c), c.ListenAddrs()[0], "TLS listener")
	})
	t.Run("the listener does not speak TLS", func(t *testing.T) {
		requireOpenError(t, newSink(t, newCluster(t),
			func(c *kafka.Options) { c.Connection.TLS = new(tls.Config) }), "handshake")
	})
}

// requireOpenError opens a sink and wants a Reconnect error with these words in it.
func requireOpenError(t *testing.T, s *kafka.Sink, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := s.Open(ctx)
	if err == nil || sinks.Classify(err) != sinks.Reconnect {
		t.Fatalf("Open gave %v, of class %v", err, sinks.Classify(err))
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
	t.Log(err)
}

func TestSASLMechanisms(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := newCluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "bridge", "secret"),
				kfake.Superuser("PLAIN", "reader", "r"))
			s := openSink(t, c, func(c *kafka.Options) {
				c.Connection.SASL = &kafka.SASL{Mechanism: mechanism, Username: "bridge", Password: "secret"}
			})
			publish(t, s, podEvents("web", 1, 3)...)
			if got := readAll(t, c, podsTopic,
				kgo.SASL(plain.Auth{User: "reader", Pass: "r"}.AsMechanism())); len(got) != 3 {
				t.Errorf("%d records", len(got))
			}
			wrong := newSink(t, c, func(c *kafka.Options) {
				c.Connection.SASL = &kafka.SASL{Mechanism: mechanism, Username: "bridge", Password: "guess"}
			})
			requireOpenError(t, wrong, c.ListenAddrs()[0], "check the sink's user name and "+
				"password")
		})
	}
}

func TestUnsupportedSASLMechanism(t *testing.T) {
	c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "bridge", "secret"))
	s := newSink(t, c, func(c *kafka.Options) {
		c.Connection.SASL = &kafka.SASL{Mechanism: "OAUTHBEARER"}
		c.Connection.Token = func(context.Context) (string, error) { return "t", nil }
	})
	requireOpenError(t, s, "OAUTHBEARER", "SCRAM-SHA-256")
}

func TestTokenRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	c := newCluster(t)
	var said []string
	fakeBearer(c, &said)
	n := new(network)
	s := newSink(t, c, n.use,
		func(c *kafka.Options) {
			c.Connection.SASL = &kafka.SASL{Mechanism: "OAUTHBEARER", TokenFile: file}
		})
	requireOpenError(t, s, file)
	for i := range 2 {
		if err := os.WriteFile(file, fmt.Appendf(nil, "token-%d\n", i), 0o600); err != nil {
			t.Fatal(err)
		}
		n.setDown(true)
		n.setDown(false)
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(said) < 2 || said[0] != "n,,\x01auth=Bearer token-0\x01\x01" ||
		said[len(said)-1] != "n,,\x01auth=Bearer token-1\x01\x01" {
		t.Errorf("the broker heard %q", said)
	}
}

func TestSASLExtensions(t *testing.T) {
	c := newCluster(t)
	var said []string
	fakeBearer(c, &said)
	s := newSink(t, c, func(c *kafka.Options) {
		c.Connection.SASL = &kafka.SASL{
			Mechanism:  "OAUTHBEARER",
			Extensions: []string{"logicalCluster=lkc-1", "identityPoolId=pool-1"},
		}
		c.Connection.Token = func(context.Context) (string, error) { return "t", nil }
	})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = "n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01identityPoolId=pool-1\x01\x01"
	if len(said) == 0 || said[0] != want {
		t.Errorf("the broker heard %q", said)
	}
}

// fakeBearer plays a listener that takes any token.
func fakeBearer(c *kfake.Cluster, said *[]string) {
	c.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return r.ResponseKind(), nil, true
	})
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		*said = append(*said, string(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes))
		return r.ResponseKind(), nil, true
	})
}

func TestRefusedToken(t *testing.T) {
	c := newCluster(t)
	c.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error,
		bool,
	) {
		return r.ResponseKind(), nil, true
	})
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.SASLAuthBytes = []byte(`{"status":"invalid_token"}`)
		return answer, nil, true
	})
	s := newSink(t, c, func(c *kafka.Options) {
		c.Connection.SASL = &kafka.SASL{Mechanism: "OAUTHBEARER"}
		c.Connection.Token = func(context.Context) (string, error) { return "old", nil }
	})
	requireOpenError(t, s, "invalid_token")
}

func TestSASLSessionLifetime(t *testing.T) {
	c := newCluster(t)
	var said []string
	c.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return r.ResponseKind(), nil, true
	})
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		said = append(said, "again")
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.SessionLifetimeMillis = 100
		return answer, nil, true
	})
	s := openSink(t, c, func(c *kafka.Options) {
		c.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"}
	})
	publish(t, s, podEvents("web", 1, 1)...)
	before := len(said)
	time.Sleep(100 * time.Millisecond)
	publish(t, s, podEvents("web", 2, 2)...)
	if len(said) == before {
		t.Error("the sink continued over a connection whose session had ended")
	}
}

func TestMissingRights(t *testing.T) {
	t.Run("to be an idempotent producer", func(t *testing.T) {
		c := newCluster(t)
		c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
			answer := r.ResponseKind().(*kmsg.InitProducerIDResponse)
			answer.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			return answer, nil, true
		})
		requireOpenError(t, newSink(t, c), "IdempotentWrite")
	})
	t.Run("to write a topic", func(t *testing.T) {
		c := newCluster(t)
		s := openSink(t, c)
		produceFault(c, kerr.TopicAuthorizationFailed, 1)
		messages := podEvents("web", 1, 3)
		s.Publish(t.Context(), messages)
		for _, m := range messages {
			if sinks.Classify(m.Err) != sinks.Reconnect ||
				!strings.Contains(m.Err.Error(), "grant the bridge's user Write") {
				t.Fatalf("%s got %v", m.Event.ID, m.Err)
			}
		}
		publish(t, s, messages...)
		requireLog(t, c, wantIDs("web", 1, 3))
	})
}

func TestUnreachableBrokers(t *testing.T) {
	s, err := kafka.New(withDefaults(kafka.Options{
		Connection: kafka.Connection{
			Brokers: []string{"127.0.0.1:1", "127.0.0.1:2"},
			Timeout: time.Second,
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	requireOpenError(t, s, "127.0.0.1:1", "127.0.0.1:2", "refused")
}

// Each of these was a list of gigabytes to who took its lengths for true.
func TestAnotherProtocol(t *testing.T) {
	for name, answer := range map[string]string{
		"NATS": "INFO {\"server_id\":\"NCS3\",\"version\":\"2.15.2\",\"max_payload\":1048576}\r\n",
		"HTTP": "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; " +
			"charset=utf-8\r\nConnection: close\r\n\r\n400",
		"a negative size":                "\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff",
		"the number of no request":       "\x00\x00\x04\x00\x00\x00\x00\x02\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00",
		"a TLS alert that is not closed": "\x15\x03\x03\x00\x02\x02\x46\x00\x00\x00\x80\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := kafka.New(withDefaults(kafka.Options{
				Connection: kafka.Connection{
					Brokers: []string{listenAndSay(t, answer)},
					Timeout: 2 * time.Second,
				},
			}))
			if err != nil {
				t.Fatal(err)
			}
			made := testkit.Allocated(func() { requireOpenError(t, s, kafka.Unusable.Error()) })
			if made > 8<<20 {
				t.Errorf("%d bytes of memory were made for an answer of %d", made, len(answer))
			}
		})
	}
}

// listenAndSay is the address of a server that says something to whoever connects, and then holds
// the line.
func listenAndSay(t *testing.T, words string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = c.Write([]byte(words))
		}
	}()
	return l.Addr().String()
}

func TestSilentListener(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, err := kafka.New(withDefaults(kafka.Options{
		Connection: kafka.Connection{
			Brokers: []string{silent.Addr().String()},
			Timeout: 100 * time.Millisecond,
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	requireOpenError(t, s, silent.Addr().String(), "no connection within 100ms")
}

func TestCheckTimeout(t *testing.T) {
	address := listenAndSay(t, "")
	s, err := kafka.New(withDefaults(kafka.Options{Connection: kafka.Connection{Brokers: []string{address}}}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Check(ctx, nil); err == nil || !strings.Contains(err.Error(), "no answer from "+
		address) {
		t.Errorf("got %v", err)
	}
}
