package faults

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Match chooses requests.
type Match func(Request) bool

// Front is a proxy before an API server that ends TLS, and passes on whose requests they are. Its
// methods may be called concurrently.
type Front struct {
	// URL is where clients connect to.
	URL string

	server *httptest.Server

	mu       sync.Mutex
	rules    []*rule      // guarded by mu
	requests []Request    // guarded by mu
	proxy    http.Handler // guarded by mu
}

// Request is one that was made, with when.
type Request struct {
	Path  string
	Query url.Values
	Time  time.Time
}

// rule is what happens to some of the requests that come.
type rule struct {
	match Match
	times int // left; negative for all
	wrap  func(next http.Handler) http.Handler
}

// NewFront begins to pass on to the API server that the configuration names.
func NewFront(config *rest.Config) (*Front, error) {
	f := &Front{}
	if err := f.PassTo(config); err != nil {
		return nil, err
	}
	f.server = httptest.NewUnstartedServer(f)
	f.server.EnableHTTP2 = true
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that are cut
	f.server.StartTLS()
	f.URL = f.server.URL
	return f, nil
}

// PassTo passes on to another API server from now on.
func (f *Front) PassTo(config *rest.Config) error {
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config)) // requests bring their own credentials
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ModifyResponse = spoil
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proxy = proxy
	return nil
}

// CA is the certificate that clients have to trust, as PEM.
func (f *Front) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
}

// Cut cuts all connections.
func (f *Front) Cut() { f.server.CloseClientConnections() }

// Stop ends everything.
func (f *Front) Stop() {
	f.server.CloseClientConnections()
	f.server.Close()
}

// Wrap lets the next requests that match (negative times: all) be answered by what wrap makes of
// the API server. Earlier rules come first.
func (f *Front) Wrap(times int, match Match, wrap func(next http.Handler) http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &rule{match, times, wrap})
}

// Answer lets requests be answered by h in place of the API server.
func (f *Front) Answer(times int, match Match, h http.HandlerFunc) {
	f.Wrap(times, match, func(http.Handler) http.Handler { return h })
}

// Heal ends all rules.
func (f *Front) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Requests are those so far that match.
func (f *Front) Requests(match Match) []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r Request) bool { return !match(r) })
}

// ServeHTTP answers a request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.take(Request{Path: r.URL.Path, Query: r.URL.Query(), Time: time.Now()}).ServeHTTP(w, r)
}

// take notes a request and gives who is to answer it.
func (f *Front) take(r Request) http.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	for _, rule := range f.rules {
		if rule.times != 0 && rule.match(r) {
			rule.times--
			return rule.wrap(f.proxy)
		}
	}
	return f.proxy
}

// Status answers with a Status of the code and reason. retryAfter, in seconds, goes into the
// header; 0 for none.
func Status(code int, reason metav1.StatusReason, retryAfter int, causes ...metav1.StatusCause) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		w.WriteHeader(code)
		_, _ = w.Write(status(code, reason, causes...)) // the client may be gone
	}
}

func status(code int, reason metav1.StatusReason, causes ...metav1.StatusCause) []byte {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: "of the test: " + string(reason), Reason: reason, Code: int32(code),
	}
	if len(causes) > 0 {
		s.Details = &metav1.StatusDetails{Causes: causes}
	}
	raw, err := json.Marshal(s)
	if err != nil { // of a Status never
		panic(err)
	}
	return raw
}
