package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// HTTP posts events to an endpoint, as the HTTP protocol binding of CloudEvents says. An event of
// an object is posted when the one before it has an answer that settles it; events of different
// objects are posted at the same time. 2xx settles an event. 401, 403, 404, 405, 407, 408, 410,
// 425, 429, 3xx, 5xx, and no answer, are tried again, with `retry` and as Retry-After asks. Any
// other 4xx refuses the event: it is a dead letter. Nothing can be read back: an event whose answer
// was lost comes again, with the same id.
type HTTP struct {
	// URL is the endpoint, of scheme `http` or `https`. A user and password in it are sent as basic
	// authentication. Redirects to another host are not followed. Left out: the variable K_SINK,
	// which Knative's SinkBinding sets.
	URL URL `yaml:"url"`
	// DeadLetterURL gets the events that the endpoint refuses, with the reason. Left out: such an
	// event is counted, logged, and goes into the folder of `state.maxUndeliveredBytes`.
	DeadLetterURL URL `yaml:"deadLetterURL"`
	// Headers are sent with each event, to the host of `url` only: names in lower case, and values,
	// which are never shown. Better ${VARIABLE} than the value itself.
	Headers map[string]Secret `yaml:"headers"`
	// TokenFile is the path of a file that holds a bearer token (RFC 6750), sent to the host of
	// `url` only. It is read again for each event, so it may be renewed by others.
	TokenFile string `yaml:"tokenFile"`
	// Timeout is how long an event waits for its answer, connecting included. At most 25s: an
	// endpoint that works longer on an event should answer 202 before.
	Timeout time.Duration `yaml:"timeout" default:"10s"`
	// Concurrency is how many events are posted at the same time, each of another object.
	Concurrency int `yaml:"concurrency" default:"16"`
	// TLS is for `https`. Left out: the system's authorities.
	TLS *TLS `yaml:"tls"`
}

// sinkVariable is the endpoint that Knative gives a container.
const sinkVariable = "K_SINK"

// fillHTTP gives endpoints that are left out Knative's.
func (c *Config) fillHTTP() {
	for i := range c.Sinks {
		h := c.Sinks[i].HTTP
		if value := os.Getenv(sinkVariable); h != nil && h.URL == "" && value != "" {
			h.URL = URL(value)
			c.origins[fmt.Sprintf("sinks[%d].http.url", i)] = settings.Origin{Text: sinkVariable}
		}
	}
}

// longestTimeout is below the time after which the publisher gives a call up.
const longestTimeout = 25 * time.Second

func (h *HTTP) validate(ps *settings.Report, path string) {
	switch {
	case h.URL != "":
		validateEndpoint(ps, path+".url", h.URL)
	case !ps.Has(path + ".url"):
		ps.Add(path+".url", "required, unless the variable %s names the endpoint", sinkVariable)
	}
	if h.DeadLetterURL != "" {
		validateEndpoint(ps, path+".deadLetterURL", h.DeadLetterURL)
	}
	h.validateHeaders(ps, path)
	if h.Timeout == 0 || h.Timeout > longestTimeout {
		ps.Add(path+".timeout", "want above 0 and at most %v, got %v", longestTimeout, h.Timeout)
	}
	if h.Concurrency < 1 || h.Concurrency > 1000 {
		ps.Add(path+".concurrency", "want 1 to 1000, got %d", h.Concurrency)
	}
	h.TLS.validate(ps, path+".tls")
	if h.TLS != nil && !slices.ContainsFunc(h.urls(),
		func(u *url.URL) bool { return u.Scheme == "https" }) {
		ps.Add(path+".tls", "has no effect without a URL of https://")
	}
}

func validateEndpoint(ps *settings.Report, path string, address URL) {
	u, err := url.Parse(string(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
		ps.Add(path, "want a URL such as https://events.example.com/in, got %q", address.String())
	}
}

var (
	headerName  = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9a-z]+$")
	headerValue = regexp.MustCompile(`^[\t -~]*$`)
)

// ownHeaders are headers that the sink or the client sets.
var ownHeaders = []string{
	"content-type", "content-length", "transfer-encoding", "connection", "host", "expect", "upgrade",
	"te", "trailer", "keep-alive",
}

func (h *HTTP) validateHeaders(ps *settings.Report, path string) {
	for name, value := range h.Headers {
		at := path + ".headers." + name
		switch lower := strings.ToLower(name); {
		case name != lower: // reported
		case !headerName.MatchString(name):
			ps.Add(at, "is no name of a header")
		case slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "ce-"):
			ps.Add(at, "is set by the bridge; attributes of your own are in informers[].attributes")
		case !headerValue.MatchString(string(value)):
			ps.Add(at, "a header holds printable ASCII only")
		}
	}
	hasUser := slices.ContainsFunc(h.urls()[:min(1, len(h.urls()))], func(u *url.URL) bool { return u.User != nil })
	_, authorization := h.Headers["authorization"]
	validateAtMostOne(ps, path, setting{"tokenFile", h.TokenFile != ""},
		setting{"headers.authorization", authorization}, setting{"url", hasUser})
}

// urls are the URLs that can be parsed, that of the endpoint first; validation reports the others.
func (h *HTTP) urls() (list []*url.URL) {
	for _, address := range []URL{h.URL, h.DeadLetterURL} {
		if u, err := url.Parse(string(address)); err == nil && u.Host != "" {
			list = append(list, u)
		}
	}
	return list
}

// place is where events go, without what may be secret in a URL.
func (h *HTTP) places() (places []string) {
	for _, u := range h.urls() {
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		places = append(places, net.JoinHostPort(u.Hostname(), port)+u.EscapedPath())
	}
	return places
}

func (h *HTTP) warn(ps *settings.Report, path string, p Protection) {
	if p == anyCertificate {
		ps.Add(path+".tls.insecureSkipVerify", skipsVerify)
	}
	for i, u := range h.urls() {
		if u.Scheme != "http" || onLoopback(u) {
			continue
		}
		keys := givenKeys(setting{"tokenFile", i == 0 && h.TokenFile != ""}, setting{"headers", i == 0 && len(h.Headers) > 0},
			setting{[]string{"url", "deadLetterURL"}[i], u.User != nil})
		if len(keys) > 0 {
			ps.Add(settings.Join(path, keys[0]), "is sent in plain text: use https://")
		}
	}
}
