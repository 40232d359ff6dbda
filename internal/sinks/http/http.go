package http

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Values of Config.Encoding.
const (
	Binary     = "binary"     // attributes as headers, the payload as it is
	Structured = "structured" // one JSON document with everything in it
)

// Config of a Sink. Zero values mean the documented default.
type Config struct {
	// URL is the endpoint, of scheme http or https. A user and password in it are sent as basic
	// authentication. Required.
	URL string
	// DeadLetterURL gets refused events. Default: none, and DeadLetter returns
	// sinks.ErrNoDeadLetter.
	DeadLetterURL string
	// Encoding is Binary (default) or Structured.
	Encoding string
	// Headers are sent with each request to the host of URL, and to no other.
	Headers map[string]string
	// Token is asked for each request, and sent as a bearer token to the host of URL, and to no
	// other. nil: none.
	Token func() (string, error)
	// TLS of connections. Default: the system's authorities.
	TLS *tls.Config
	// Timeout of a request, its connection and its answer included. Default 10s.
	Timeout time.Duration
	// Concurrency is how many requests may be in flight. Default 16.
	Concurrency int
	// Dial replaces the dialer, for tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Sink posts events. It implements sinks.Sink.
type Sink struct {
	cfg       Config
	events    *url.URL
	dead      *url.URL // nil for none
	client    *http.Client
	transport *http.Transport
	pause     pause
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the configuration. It contacts nobody.
func New(cfg Config) (*Sink, error) {
	cfg.Encoding = cmp.Or(cfg.Encoding, Binary)
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 16)
	s := &Sink{cfg: cfg}
	var err error
	if s.events, err = parseURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if cfg.DeadLetterURL != "" {
		if s.dead, err = parseURL(cfg.DeadLetterURL); err != nil {
			return nil, fmt.Errorf("deadLetterURL: %w", err)
		}
	}
	if cfg.Encoding != Binary && cfg.Encoding != Structured {
		return nil, fmt.Errorf("encoding %q: want binary or structured", cfg.Encoding)
	}
	s.transport = newTransport(cfg)
	s.client = &http.Client{Transport: s.transport, CheckRedirect: checkRedirect}
	return s, nil
}

// parseURL does not repeat the URL in its errors: it may hold a password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("want a URL such as https://events.example.com/in")
	}
	return u, nil
}

// newTransport returns a client for one endpoint. It speaks HTTP/1.1 only: a request without an
// answer then costs its own connection, and no other request.
func newTransport(cfg Config) *http.Transport {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: min(cfg.Timeout, 5*time.Second)}).DialContext
	}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSClientConfig:        cfg.TLS,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    cfg.Concurrency,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // an answer is thrown away, and not inflated before
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// Open returns when the endpoint answers. OPTIONS is what CloudEvents has for asking an endpoint
// without an event. What the answer is does not matter, as long as it comes from the endpoint, and
// not from a gateway in front of it.
func (s *Sink) Open(ctx context.Context) error {
	status, err := s.send(ctx, http.MethodOptions, s.events, message{})
	switch {
	case err != nil:
		return reconnect(err)
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable,
		status == http.StatusGatewayTimeout:
		return reconnect(fmt.Errorf("%s: the gateway answered %s", place(s.events), statusText(status)))
	}
	return nil
}

// reconnect keeps what says that the caller's context ended.
func reconnect(err error) error {
	if sinks.Classify(err) == sinks.Stopped {
		return err
	}
	return &sinks.Error{Class: sinks.Reconnect, Err: err}
}

// Close ends connections that no request uses.
func (s *Sink) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Order is ByObject: requests are independent.
func (s *Sink) Order() sinks.Order { return sinks.ByObject }

// Limits are calls of one message each: an answer that is late delays no other object.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{Messages: 1, Concurrency: s.cfg.Concurrency}
}

// Lane is the object of an informer.
func (s *Sink) Lane(_ context.Context, e *event.Event) (string, error) {
	return e.Informer + "/" + e.PartitionKey, nil
}

// Publish posts the messages, one after the other.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) {
	for _, m := range batch {
		m.Err = s.post(ctx, s.events, m.Event)
	}
}

// DeadLetter posts the event to the URL for dead letters, with the attribute deadletterurl: where
// it was refused.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if s.dead == nil {
		return sinks.ErrNoDeadLetter
	}
	to := event.Attribute{Name: "deadletterurl", Value: place(s.events)}
	return sinks.DeadLetter(ctx, e, reason, attempts, to,
		func(ctx context.Context, letter *event.Event) error { return s.post(ctx, s.dead, letter) })
}

// post sends an event and sorts the answer.
func (s *Sink) post(ctx context.Context, to *url.URL, e *event.Event) error {
	m, err := encode(e, s.cfg.Encoding)
	if err != nil {
		return err
	}
	if err := s.pause.wait(ctx); err != nil {
		return err
	}
	status, err := s.send(ctx, http.MethodPost, to, m)
	if err != nil {
		return err
	}
	return classified(to, status)
}

// send sends a request and returns the status of the answer. Its errors are classified.
func (s *Sink) send(
	ctx context.Context, method string, to *url.URL, m message,
) (status int, err error) {
	timed, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	connected := false
	traced := httptrace.WithClientTrace(timed, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	})
	r, err := http.NewRequestWithContext(traced, method, to.String(), bytes.NewReader(m.body))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", place(to), stripped(err))
	}
	if m.header != nil {
		r.Header = m.header
	}
	if err := s.authorize(r); err != nil {
		return 0, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, s.failed(ctx, to, connected, err)
	}
	defer func() { _ = response.Body.Close() }()
	drain(response.Body)
	if status = response.StatusCode; status == http.StatusTooManyRequests ||
		status == http.StatusServiceUnavailable {
		s.pause.obey(response.Header.Get("Retry-After"))
	}
	return status, nil
}

// authorize sets the headers that are for the host of the endpoint.
func (s *Sink) authorize(r *http.Request) error {
	r.Header.Set("User-Agent", "bridge")
	if user := r.URL.User; user != nil { // the client itself would not do so after a redirect
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}
	if !sameHost(r.URL, s.events) {
		return nil
	}
	for name, value := range s.cfg.Headers {
		r.Header.Set(name, value)
	}
	if s.cfg.Token == nil {
		return nil
	}
	token, err := s.cfg.Token()
	if err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// drain reads an answer to its end, where that is near, so that the connection can be used again.
func drain(body io.Reader) {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, body, most)
}

// checkRedirect follows a redirect that keeps the method, within the host. Else the redirect itself
// is the answer.
func checkRedirect(r *http.Request, via []*http.Request) error {
	const most = 3
	first := via[0]
	if len(via) > most || r.Method != first.Method || !sameHost(r.URL, first.URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// sameHost reports whether two URLs have the same scheme, host and port.
func sameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}

// place is a URL without what may be secret in it.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }
