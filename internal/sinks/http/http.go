package http

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Options of a Sink.
type Options struct {
	Config
	sinks.Common
	// Token replaces the file of the token, and Dial the dialer, for tests.
	Token func() (string, error)
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// Sink posts events. It implements sinks.Sink.
type Sink struct {
	cfg       Options
	events    *url.URL
	dead      *url.URL // nil for none
	client    *http.Client
	transport *http.Transport
	slots     *slots
	batches   *batcher // nil: each event is a request
	encoding  string
	pause     pause
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the configuration and reads the files of its section tls. It contacts nobody.
func New(cfg Options) (*Sink, error) {
	if cfg.Token == nil && cfg.TokenFile != "" {
		// It reads the file each time, so that a renewed token is used.
		cfg.Token = func() (string, error) { return settings.ReadToken(cfg.TokenFile) }
	}
	s := &Sink{cfg: cfg, slots: newSlots(cfg.Concurrency), encoding: cfg.Encoding}
	if cfg.Batch > 0 {
		s.batches = newBatcher(cfg.Batch)
	}
	var err error
	if s.events, err = parseURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if cfg.DeadLetterURL != "" {
		if s.dead, err = parseURL(cfg.DeadLetterURL); err != nil {
			return nil, fmt.Errorf("deadLetterURL: %w", err)
		}
	}
	if !slices.Contains(sinks.Encodings, cfg.Encoding) {
		return nil, fmt.Errorf("encoding %q: want one of %v", cfg.Encoding, sinks.Encodings)
	}
	encryption, err := cfg.TLS.Load()
	if err != nil {
		return nil, err
	}
	s.transport = newTransport(&cfg, encryption)
	s.client = &http.Client{Transport: s.transport, CheckRedirect: checkRedirect}
	return s, nil
}

// parseURL does not repeat the URL in its errors: it may hold a password.
func parseURL(text settings.URL) (*url.URL, error) {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("want a URL such as https://events.example.com/in")
	}
	return u, nil
}

// newTransport returns a client for one endpoint. It speaks HTTP/1.1 only: a request without an
// answer then costs its own connection, and no other request.
func newTransport(cfg *Options, encryption *tls.Config) *http.Transport {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: min(cfg.Timeout, 5*time.Second)}).DialContext
	}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSClientConfig:        encryption,
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

// Limits are calls of one message each: an answer that is late delays no other object. Of the calls
// at once, Config.Concurrency are requests that do not hang, or wait for one that they share.
func (s *Sink) Limits() sinks.Limits {
	requests := maxHanging * s.cfg.Concurrency
	return sinks.Limits{Messages: 1, Concurrency: max(requests, min(maxCalls, requests*s.cfg.Batch))}
}

// Lane is the object of an informer.
func (s *Sink) Lane(_ context.Context, e *event.Event) (string, error) {
	return e.Informer + "/" + e.PartitionKey, nil
}

// Publish posts the messages, one after the other.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) {
	for _, m := range batch {
		if s.batches == nil {
			m.Err = s.post(ctx, s.events, m.Event)
		} else {
			m.Err = s.publish(ctx, m.Event)
		}
	}
}

// DeadLetter posts the event to the URL for dead letters, with the attribute deadletterurl: where
// it was refused.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if s.dead == nil {
		return sinks.ErrNoDeadLetter
	}
	to := event.Attribute{Name: "deadletterurl", Value: place(s.events)}
	err := sinks.DeadLetter(ctx, e, reason, attempts, to,
		func(ctx context.Context, letter *event.Event) error { return s.post(ctx, s.dead, letter) })
	if err != nil && sinks.Classify(err) == sinks.Reconnect {
		// It says nothing about the endpoint: only refused events wait.
		return &sinks.Error{Class: sinks.Retry, Err: err}
	}
	return err
}

// post sends an event and sorts the answer.
func (s *Sink) post(ctx context.Context, to *url.URL, e *event.Event) error {
	m, err := encode(e, s.encoding, s.batches != nil)
	if err != nil {
		return err
	}
	if err := s.pause.wait(ctx); err != nil {
		return err
	}
	leave, err := s.slots.enter(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", sinks.ErrNotSent, err)
	}
	status, err := s.send(ctx, http.MethodPost, to, m)
	leave(err == nil)
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
	if err := errors.Join(s.authorize(r), s.signed(r, m)); err != nil {
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
		r.Header.Set(name, string(value))
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
func place(u *url.URL) string {
	return settings.URL(u.Scheme + "://" + u.Host + u.EscapedPath()).String()
}

// message is an encoded event. It shares no memory with the event: a client may still write it when
// the answer is there.
type message struct {
	header http.Header
	body   []byte
	id     string // of the event, or of what is sent
}

// encode makes the message of an event, as a batch of one where batches are sent. A panic refuses
// the event.
func encode(e *event.Event, encoding string, inBatch bool) (m message, err error) {
	defer sinks.Recover(&err)
	if inBatch {
		one := &entry{document: sinks.AppendDocument(nil, e, encoding)}
		return joined([]*entry{one}, encoding), nil
	}
	m.header, m.id = http.Header{}, strings.Clone(e.ID)
	if encoding != sinks.Binary {
		m.header["Content-Type"] = []string{sinks.DocumentType(encoding)}
		m.body = sinks.AppendDocument(nil, e, encoding)
		return m, nil
	}
	e.Each(func(name, value string) {
		if name == "datacontenttype" {
			m.header["Content-Type"] = []string{value}
			return
		}
		m.header[headerName(name)] = []string{strings.Clone(event.HeaderValue(value))}
	})
	m.body = bytes.Clone(e.Data)
	return m, nil
}

// headerName is the header of an attribute, in the form that Go's client writes: Ce-Id.
func headerName(attribute string) string {
	return "Ce-" + strings.ToUpper(attribute[:1]) + attribute[1:]
}

const (
	// longestPause bounds Retry-After, so that no endpoint stops the sink for days.
	longestPause = 5 * time.Minute
	// patience is how long a call waits for the end of a pause. It is well below the time that the
	// publisher gives a call.
	patience = 10 * time.Second
)

var errPaused = fmt.Errorf("%w: the endpoint has asked for a pause (Retry-After)", sinks.ErrNotSent)

// pause is the time for which an endpoint has asked to be left alone.
type pause struct {
	mu    sync.Mutex
	until time.Time // guarded by mu
}

// obey reads Retry-After: seconds, or a date. What is neither is ignored.
func (p *pause) obey(retryAfter string) {
	length := time.Duration(0)
	text := strings.TrimSpace(retryAfter)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		length = time.Duration(min(seconds, int64(longestPause/time.Second))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		length = min(time.Until(date), longestPause)
	}
	if length <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(length); until.After(p.until) {
		p.until = until
	}
}

// wait returns nil once the pause is over. Where that takes too long for a call, nothing is sent,
// and the caller comes again.
func (p *pause) wait(ctx context.Context) error {
	p.mu.Lock()
	left := time.Until(p.until)
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(min(left, patience))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
	case <-timer.C:
	}
	if left > patience {
		return &sinks.Error{Class: sinks.Retry, Err: errPaused}
	}
	return nil
}

// classified sorts an answer. It is the one place that knows what a status means;
// docs/decisions/0011 says why some of 4xx are not about the event. Neither the URL's secrets nor
// the endpoint's own words are in the error: the words may repeat the event.
func classified(to *url.URL, status int) error {
	answer := fmt.Errorf("%s answered %s", place(to), statusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("%w: a redirect to another host, "+
			"or with another method, is not followed; set the url that it leads to", answer)}
	case aboutEndpoint(status), status >= 500:
		return &sinks.Error{Class: sinks.Retry, Err: answer}
	case status == http.StatusRequestEntityTooLarge, status == http.StatusRequestHeaderFieldsTooLarge:
		return &sinks.Error{Class: sinks.Refused, Err: fmt.Errorf("%w: %w", sinks.ErrTooLarge, answer)}
	}
	return &sinks.Error{Class: sinks.Refused, Err: answer}
}

// aboutEndpoint reports whether a status says that the endpoint is not there, not ready, or does
// not know the bridge: another event would have the same answer.
func aboutEndpoint(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusGone, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// failed sorts an error of the client. An endpoint that took the connection and then failed may do
// so for this event only, so only its object waits.
func (s *Sink) failed(ctx context.Context, to *url.URL, connected bool, err error) error {
	if ctx.Err() != nil {
		return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
	}
	err = stripped(err)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", s.cfg.Timeout)
	}
	class := sinks.Retry
	if !connected {
		class = sinks.Reconnect
	}
	return &sinks.Error{Class: class, Err: fmt.Errorf("%s: %w", place(to), err)}
}

// stripped is a client's error without the URL, which may hold secrets.
func stripped(err error) error {
	if about, ok := errors.AsType[*url.Error](err); ok {
		return about.Err
	}
	return err
}

// statusText is "404 Not Found", or "599".
func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// signingKeys are those with which a request is signed, each for itself.
type signingKeys [][]byte

// keyPrefix marks a key of Standard Webhooks; what follows is base64.
const keyPrefix = "whsec_"

// Bounds of a key in bytes, of the specification.
const minKey, maxKey = 24, 64

// readSigningKeys reads the keys from a file, one a line.
func readSigningKeys(file string) (signingKeys, error) {
	text, err := settings.ReadToken(file)
	if err != nil {
		return nil, err
	}
	var keys signingKeys
	for line := range strings.Lines(text) {
		encoded, isKey := strings.CutPrefix(strings.TrimSpace(line), keyPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !isKey || err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("%s: want lines of %s and %d to %d bytes in base64", file, keyPrefix,
				minKey, maxKey)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// errNoKeys keeps an event from being sent without a signature.
var errNoKeys = errors.New("the file of signingKeyFile has no key")

// sign sets the headers of Standard Webhooks, which prove that the body is of a holder of the key,
// and when it was sent: https://www.standardwebhooks.com. An id is the same in each attempt.
func sign(r *http.Request, id string, body []byte, keys signingKeys) error {
	if len(keys) == 0 {
		return errNoKeys
	}
	id = strings.ReplaceAll(event.HeaderValue(id), ".", "%2E") // a dot ends the id in what is signed
	now := strconv.FormatInt(time.Now().Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + now + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", now)
	r.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	return nil
}

// signed signs a request with an event, where the configuration has a key.
func (s *Sink) signed(r *http.Request, m message) error {
	if s.cfg.SigningKeyFile == "" || m.id == "" {
		return nil
	}
	keys, err := readSigningKeys(s.cfg.SigningKeyFile)
	if err == nil {
		err = sign(r, m.id, m.body, keys)
	}
	if err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}
