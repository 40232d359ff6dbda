package http_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// decoded is the value of a header as it was before it was encoded.
func decoded(value string) string {
	text, err := url.PathUnescape(value)
	if err != nil {
		return "not encoded: " + value
	}
	return text
}

// network is a network in memory, for tests with a clock of their own. Each host has a handler.
type network struct {
	t       *testing.T
	mu      sync.Mutex
	servers map[string]*memoryServer // guarded by mu
}

// memoryServer listens in memory.
type memoryServer struct {
	server *nethttp.Server
	conns  chan net.Conn
	done   chan struct{}
}

func newNetwork(t *testing.T) *network { return &network{t: t, servers: map[string]*memoryServer{}} }

// serve answers for a host until stop is called, at the latest when the test ends.
func (n *network) serve(host string, h nethttp.HandlerFunc) (stop func()) {
	m := &memoryServer{
		server: &nethttp.Server{Handler: h}, conns: make(chan net.Conn), done: make(chan struct{}),
	}
	n.mu.Lock()
	n.servers[host] = m
	n.mu.Unlock()
	go func() { _ = m.server.Serve(m) }()
	stop = func() { _ = m.server.Close() }
	n.t.Cleanup(stop)
	return stop
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	m := n.servers[address]
	n.mu.Unlock()
	if m == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("no such host")}
	}
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.done:
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (m *memoryServer) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *memoryServer) Close() error {
	select {
	case <-m.done:
	default:
		close(m.done)
	}
	return nil
}

// Addr implements net.Listener.
func (m *memoryServer) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

const endpoint = "http://a.test:80/in"

func (n *network) sink(cfg http.Options) *http.Sink {
	if cfg.URL == "" {
		cfg.URL = endpoint
	}
	cfg.Dial = n.dial
	s := newSink(n.t, cfg)
	n.t.Cleanup(func() { testkit.OK(n.t, s.Close()) })
	return s
}

// publish posts one event.
func publish(t *testing.T, s *http.Sink) error {
	t.Helper()
	m := &sinks.Message{Event: sinktest.NewEvent("web", 1, 300)}
	s.Publish(t.Context(), []*sinks.Message{m})
	return m.Err
}

// hang answers when nobody waits any more.
func hang(_ nethttp.ResponseWriter, r *nethttp.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a server looks at its connection once the body is read
	<-r.Context().Done()
}

func answer(status int) nethttp.HandlerFunc {
	return func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(status) }
}

func TestAnswers(t *testing.T) {
	const settled = sinks.Class(-1)
	for class, statuses := range map[sinks.Class][]int{
		settled: {200, 201, 202, 204, 299},
		sinks.Retry: {
			300, 301, 302, 303, 304, 307, 308, 401, 403, 404, 405, 407, 408, 410, 425, 429, 500, 501,
			502, 503, 504, 599,
		},
		sinks.Refused: {400, 402, 406, 409, 411, 412, 413, 414, 415, 422, 426, 431, 451, 499},
	} {
		for _, status := range statuses {
			t.Run(fmt.Sprint(status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newNetwork(t)
					n.serve("a.test:80", answer(status))
					err := publish(t, n.sink(http.Options{}))
					if class == settled {
						testkit.OK(t, err)
						return
					}
					if err == nil || sinks.Classify(err) != class || !strings.Contains(err.Error(), fmt.Sprint(status)) {
						t.Errorf("%v, class %v, want %v", err, sinks.Classify(err), class)
					}
					if large := status == 413 || status == 431; errors.Is(err, sinks.ErrTooLarge) != large {
						t.Errorf("%v: want too large: %v", err, large)
					}
				})
			})
		}
	}
}

func TestFailures(t *testing.T) {
	hijacked := func(do func(net.Conn)) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			conn, _, err := nethttp.NewResponseController(w).Hijack()
			if err == nil {
				do(conn)
			}
		}
	}
	for _, c := range []struct {
		name  string
		class sinks.Class
		says  string
		h     nethttp.HandlerFunc
	}{
		{"a connection that is cut delays one object", sinks.Retry, "EOF", hijacked(func(c net.Conn) { _ = c.Close() })},
		{"an answer that does not come delays one object", sinks.Retry, "no answer within 10s", hijacked(func(net.Conn) {})},
		{"an answer that is not HTTP delays one object", sinks.Retry, "malformed", hijacked(func(c net.Conn) {
			_, _ = io.WriteString(c, "220 mail.test ESMTP\r\n\r\n")
			_ = c.Close()
		})},
		{"endless headers are given up", sinks.Retry, "exceeded", hijacked(func(c net.Conn) {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = io.WriteString(c, "X-More: "+strings.Repeat("x", 1000)+"\r\n")
			}
		})},
		{"nobody who listens pauses the sink", sinks.Reconnect, "no such host", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				if c.h != nil {
					n.serve("a.test:80", c.h)
				}
				began := time.Now()
				err := publish(t, n.sink(http.Options{Config: http.Config{URL: "http://user:hunter2@a.test:80/in?code=hunter2"}}))
				if err == nil || sinks.Classify(err) != c.class || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, class %v, want %v and %q in it", err, sinks.Classify(err), c.class, c.says)
				}
				if strings.Contains(fmt.Sprint(err), "hunter2") {
					t.Errorf("a secret of the URL is in %v", err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
	t.Run("a context that ends is no failure of the endpoint", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			n.serve("a.test:80", hang)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			m := &sinks.Message{Event: sinktest.NewEvent("web", 1, 300)}
			n.sink(http.Options{}).Publish(ctx, []*sinks.Message{m})
			if m.Err == nil || sinks.Classify(m.Err) != sinks.Stopped {
				t.Errorf("%v", m.Err)
			}
		})
	})
}

// An answer says 200 and then continues forever: the event is settled, and the connection ends.
func TestEndlessAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		written := 0
		n.serve("a.test:80", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			for {
				count, err := io.WriteString(w, strings.Repeat("x", 1000))
				if err != nil {
					return
				}
				written += count
			}
		})
		testkit.OK(t, publish(t, n.sink(http.Options{})))
		synctest.Wait()
		if written > 1<<20 {
			t.Errorf("%d bytes of an answer were read", written)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name, header string
		status       int
		want         time.Duration
	}{
		{"seconds", "7", 429, 7 * time.Second},
		{"a date", "Sat, 01 Jan 2000 00:00:20 GMT", 503, 20 * time.Second}, // synctest's clock begins at midnight
		{"no more than five minutes", "31536000", 429, 5 * time.Minute},
		{"nonsense", "soon", 429, 0},
		{"no time", "-5", 429, 0},
		{"another answer", "7", 500, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				calls := 0
				n.serve("a.test:80", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
					if calls++; calls == 1 {
						w.Header().Set("Retry-After", c.header)
						w.WriteHeader(c.status)
					}
				})
				s := n.sink(http.Options{})
				began := time.Now()
				for publish(t, s) != nil {
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("the next request came after %v, want %v", took, c.want)
				}
				if calls != 2 {
					t.Errorf("%d requests", calls)
				}
			})
		})
	}
}

func TestRedirects(t *testing.T) {
	to := func(status int, location string) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.URL.Path == "/in" {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			}
		}
	}
	for _, c := range []struct {
		name     string
		status   int
		location string
		followed bool
	}{
		{"one within the host that keeps the method is followed", 308, "/other", true},
		{"one that would make a GET of it is not followed", 302, "/other", false},
		{"one to another host is not followed", 307, "http://b.test:80/in", false},
		{"one to another port is not followed", 307, "http://a.test:81/in", false},
		{"one to another scheme is not followed", 308, "https://a.test:80/in", false},
		{"a circle ends", 308, "/in", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				n.serve("a.test:80", to(c.status, c.location))
				for _, other := range []string{"b.test:80", "a.test:81"} {
					n.serve(other, func(nethttp.ResponseWriter, *nethttp.Request) { t.Errorf("a request came to %s", other) })
				}
				err := publish(t, n.sink(http.Options{Config: http.Config{Headers: map[string]settings.Secret{"authorization": "Basic x"}}}))
				if c.followed {
					testkit.OK(t, err)
				} else if err == nil || sinks.Classify(err) != sinks.Retry || !strings.Contains(err.Error(), "redirect") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// What identifies the bridge to the endpoint goes to the endpoint's host only.
func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		seen := map[string][]string{}
		note := func(w nethttp.ResponseWriter, r *nethttp.Request) {
			seen[r.Host+r.URL.Path] = append(seen[r.Host+r.URL.Path], r.Header.Get("Authorization")+"|"+r.Header.Get("X-Key"))
			if r.URL.Path == "/moved" {
				nethttp.Redirect(w, r, "/after", nethttp.StatusTemporaryRedirect)
			}
		}
		n.serve("a.test:80", note)
		n.serve("b.test:80", note)
		token, tokenErr := "one", error(nil)
		s := n.sink(http.Options{
			Config: http.Config{
				DeadLetterURL: "http://user:pass@b.test:80/dead", Headers: map[string]settings.Secret{"x-key": "k"},
			},
			Token: func() (string, error) { return token, tokenErr },
		})
		testkit.OK(t, publish(t, s))
		token = "two"
		testkit.OK(t, publish(t, s))
		testkit.OK(t, s.DeadLetter(t.Context(), sinktest.NewEvent("web", 1, 300), errors.New("no"), 1))
		tokenErr = errors.New("the file is gone")
		if err := publish(t, s); sinks.Classify(err) != sinks.Reconnect {
			t.Errorf("without a token: %v", err)
		}
		testkit.OK(t, publish(t, n.sink(http.Options{Config: http.Config{URL: "http://user:pass@a.test:80/moved"}})))
		want := map[string][]string{
			"a.test:80/in":    {"Bearer one|k", "Bearer two|k"},
			"b.test:80/dead":  {"Basic dXNlcjpwYXNz|"},
			"a.test:80/moved": {"Basic dXNlcjpwYXNz|"},
			"a.test:80/after": {"Basic dXNlcjpwYXNz|"},
		}
		if fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", seen, want)
		}
	})
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name string
		h    nethttp.HandlerFunc
		open bool
	}{
		{"an endpoint that does not know OPTIONS is there", answer(405), true},
		{"an endpoint that fails at it is there", answer(500), true},
		{"a gateway without an endpoint is not enough", answer(502), false},
		{"nor one that has none now", answer(503), false},
		{"nor one that gets no answer", answer(504), false},
		{"an endpoint that does not answer is not there", hang, false},
		{"an endpoint that is not there is waited for", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				if c.h != nil {
					n.serve("a.test:80", c.h)
				}
				err := n.sink(http.Options{}).Open(t.Context())
				if c.open != (err == nil) || err != nil && sinks.Classify(err) != sinks.Reconnect {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestNew(t *testing.T) {
	for says, cfg := range map[string]http.Options{
		"url: want a URL":           {Config: http.Config{URL: "ftp://user:hunter2@a.test"}},
		"deadLetterURL: want a URL": {Config: http.Config{URL: endpoint, DeadLetterURL: "hunter2"}},
		`encoding "avro"`:           {Config: http.Config{URL: endpoint}, Common: sinks.Common{Encoding: "avro"}},
	} {
		if _, err := http.New(cfg); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
}

// Keys of Standard Webhooks.
const (
	oldKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newKey = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	badKey = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func write(t *testing.T, file, text string) string {
	t.Helper()
	testkit.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A receiver with the library of Standard Webhooks verifies the events and the dead letters, with
// each of the keys, and keys are replaced while the sink runs.
func TestSignature(t *testing.T) {
	var headers nethttp.Header
	var body []byte
	server := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		headers = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	verifies := func(key string) error {
		w, err := standardwebhooks.NewWebhook(key)
		testkit.OK(t, err)
		return w.Verify(body, headers)
	}
	file := write(t, filepath.Join(t.TempDir(), "key"), oldKey+"\n")
	s := newSink(t, http.Options{
		Config: http.Config{
			URL: settings.URL(server.URL), DeadLetterURL: settings.URL(server.URL + "/dead"), SigningKeyFile: file,
		},
		Common: sinks.Common{Encoding: sinks.Structured},
	})
	defer func() { testkit.OK(t, s.Close()) }()
	testkit.OK(t, publish(t, s))
	testkit.OK(t, verifies(oldKey))
	if verifies(badKey) == nil {
		t.Error("another key verifies the event")
	}
	id := headers.Get("Webhook-Id")
	if e, err := sinktest.ParseStructured(body); err != nil || id == "" || e.Attributes["id"] != id {
		t.Errorf("webhook-id %q of %v, %v", id, e.Attributes, err)
	}
	body = append(slices.Clip(body), ' ')
	if verifies(oldKey) == nil {
		t.Error("another body is verified")
	}
	write(t, file, oldKey+"\n"+newKey+"\n")
	testkit.OK(t, publish(t, s))
	testkit.OK(t, errors.Join(verifies(oldKey), verifies(newKey)))
	if again := headers.Get("Webhook-Id"); again != id {
		t.Errorf("the same event has the ids %q and %q", id, again)
	}
	dotted := sinktest.NewEvent("web", 1, 300)
	dotted.ID = "a.b c"
	testkit.OK(t, s.DeadLetter(t.Context(), dotted, errors.New("no"), 1))
	testkit.OK(t, verifies(newKey))
	if id := headers.Get("Webhook-Id"); id != "a%2Eb%20c" {
		t.Errorf("webhook-id %q", id)
	}
	headers = nil
	for _, text := range []string{"", "hunter2", "whsec_!", "whsec_aHVudGVyMg=="} {
		write(t, file, text)
		err := publish(t, s)
		if sinks.Classify(err) != sinks.Reconnect || headers != nil {
			t.Errorf("with the key %q: %v, sent %v", text, err, headers)
		}
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("with the key %q: %v", text, err)
		}
	}
}

// An endpoint that wants a certificate of the bridge gets it, also a renewed one, and one without a
// certificate that the endpoint takes sends nothing.
func TestMutualTLS(t *testing.T) {
	ca, other := testkit.NewCA(t), testkit.NewCA(t)
	var client atomic.Value
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		client.Store(r.TLS.PeerCertificates[0].DNSNames[0])
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t)}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: ca.Pool,
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	files := sinks.TLS{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
	}
	write(t, files.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.DER})))
	issue := func(by *testkit.CA, name string) {
		pair := by.Issue(t, name)
		key, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
		testkit.OK(t, err)
		write(t, files.CertFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
		write(t, files.KeyFile, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})))
	}
	post := func(encryption *sinks.TLS) error {
		s := newSink(t, http.Options{Config: http.Config{URL: settings.URL(server.URL), TLS: encryption, Timeout: 5 * time.Second}})
		defer func() { testkit.OK(t, s.Close()) }()
		return publish(t, s)
	}
	issue(ca, "bridge")
	testkit.OK(t, post(&files))
	issue(ca, "renewed")
	testkit.OK(t, post(&files))
	if name := client.Load(); name != "renewed" {
		t.Errorf("the endpoint saw the certificate of %v", name)
	}
	issue(other, "intruder")
	for name, encryption := range map[string]*sinks.TLS{
		"a certificate of another authority": &files, "no certificate": {CAFile: files.CAFile},
		"an unknown authority of the endpoint": nil,
	} {
		if err := post(encryption); err == nil || sinks.Classify(err) == sinks.Refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if name := client.Load(); name != "renewed" {
		t.Errorf("the endpoint took an event of %v", name)
	}
}
