package http

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Config is the section `http` of a sink.
//
// HTTP posts events to an endpoint, as the HTTP protocol binding of CloudEvents says. An event of
// an object is posted when the one before it is settled; those of different objects are posted at
// the same time. 2xx settles an event. 401, 403, 404, 405, 407, 408, 410, 425, 429, 3xx, 5xx, and
// no answer, are tried again, with `retry` and as Retry-After asks. After 413 smaller forms are
// tried (`oversize`). Any other 4xx refuses the event: it is a dead letter. Nothing can be read
// back: an event whose answer was lost comes again, with the same id.
type Config struct {
	// URL is the endpoint, of scheme `http` or `https`. A user and password in it are sent as basic
	// authentication. Redirects to another host are not followed. Left out: the variable K_SINK,
	// which Knative's SinkBinding sets.
	URL settings.URL `yaml:"url"`
	// DeadLetterURL gets the events that the endpoint refuses, with the reason. Left out: such an
	// event is counted, logged, and goes into the folder of `state.maxUndeliveredBytes`.
	DeadLetterURL settings.URL `yaml:"deadLetterURL"`
	// Headers are sent with each event, to the host of `url` only: names in lower case, and values,
	// which are never shown. Better ${VARIABLE} than the value itself.
	Headers map[string]settings.Secret `yaml:"headers"`
	// TokenFile is the path of a file that holds a bearer token (RFC 6750), sent to the host of
	// `url` only. It is read again for each event, so it may be renewed by others.
	TokenFile string `yaml:"tokenFile"`
	// SigningKeyFile is the path of a file with keys of Standard Webhooks, one a line, as
	// `whsec_…`: each event has the headers `webhook-id`, `webhook-timestamp` and
	// `webhook-signature`, an HMAC of them and the body, for each key. It is read again for each
	// event, so keys may be replaced. Not with `encoding: binary`: headers are not signed.
	SigningKeyFile string `yaml:"signingKeyFile"`
	// Timeout is how long an event waits for its answer, connecting included. At most 25s: an
	// endpoint that works longer on an event should answer 202 before.
	Timeout time.Duration `yaml:"timeout" default:"10s"`
	// Concurrency is how many events are posted at the same time, each of another object. One that
	// has no answer for a second, and for four times as long as others take, does not count: so up
	// to four times as many may be.
	Concurrency int `yaml:"concurrency" default:"16"`
	// Batch is how many events, of as many objects, a request holds at most, in a body of 1 MiB:
	// a list as `application/cloudevents-batch+json`, or of flat records, also of one event. Events
	// gather while `concurrency` requests are sent. After any answer but 2xx and 429 each event of
	// the request is posted alone, so those that were taken come again. After 413 requests become
	// smaller. Not with `encoding: binary`. 0: each event is a request.
	Batch int `yaml:"batch"`
	// TLS is for `https`. Left out: the system's authorities.
	TLS *sinks.TLS `yaml:"tls"`
}

var _ interface {
	sinks.Remote
	sinks.Filler
} = (*Config)(nil)

// sinkVariable is the endpoint that Knative gives a container.
const sinkVariable = "K_SINK"

// Fill gives an endpoint that is left out Knative's.
func (c *Config) Fill(path string, origins settings.Origins) {
	if value := os.Getenv(sinkVariable); c.URL == "" && value != "" {
		c.URL = settings.URL(value)
		origins[path+".url"] = settings.Origin{Text: sinkVariable}
	}
}

// longestTimeout is below the time after which the publisher gives a call up.
const longestTimeout = 25 * time.Second

const (
	maxBatch = 1000
	// longestBatchTimeout leaves time for an event that is posted in a batch, and then alone.
	longestBatchTimeout = 12 * time.Second
)

// Validate reports what is wrong with the keys.
func (c *Config) Validate(ps *settings.Report, path string) {
	switch {
	case c.URL != "":
		validateEndpoint(ps, path+".url", c.URL)
	case !ps.Has(path + ".url"):
		ps.Add(path+".url", "required, unless the variable %s names the endpoint", sinkVariable)
	}
	if c.DeadLetterURL != "" {
		validateEndpoint(ps, path+".deadLetterURL", c.DeadLetterURL)
	}
	c.validateHeaders(ps, path)
	if c.Timeout == 0 || c.Timeout > longestTimeout {
		ps.Add(path+".timeout", "want above 0 and at most %v, got %v", longestTimeout, c.Timeout)
	}
	if c.Concurrency < 1 || c.Concurrency > 1000 {
		ps.Add(path+".concurrency", "want 1 to 1000, got %d", c.Concurrency)
	}
	if c.Batch < 0 || c.Batch > maxBatch {
		ps.Add(path+".batch", "want 0 to %d, got %d", maxBatch, c.Batch)
	}
	if c.Batch > 0 && c.Timeout > longestBatchTimeout && c.Timeout <= longestTimeout {
		ps.Add(path+".timeout", "want at most %v with batch, got %v", longestBatchTimeout, c.Timeout)
	}
	c.TLS.Validate(ps, path+".tls")
	if c.TLS != nil && !slices.ContainsFunc(c.urls(),
		func(u *url.URL) bool { return u.Scheme == "https" }) {
		ps.Add(path+".tls", "has no effect without a URL of https://")
	}
}

func validateEndpoint(ps *settings.Report, path string, address settings.URL) {
	u, err := url.Parse(string(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
		ps.Add(path, "want a URL such as https://events.example.com/in, got %q", address.String())
	}
}

var (
	namePattern  = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9a-z]+$")
	valuePattern = regexp.MustCompile(`^[\t -~]*$`)
)

// ownHeaders are headers that the sink or the client sets.
var ownHeaders = []string{
	"content-type", "content-length", "transfer-encoding", "connection", "host", "expect", "upgrade",
	"te", "trailer", "keep-alive",
}

func (c *Config) validateHeaders(ps *settings.Report, path string) {
	for name, value := range c.Headers {
		at := path + ".headers." + name
		switch lower := strings.ToLower(name); {
		case name != lower: // reported
		case !namePattern.MatchString(name):
			ps.Add(at, "is no name of a header")
		case slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "ce-"):
			ps.Add(at, "is set by the bridge; attributes of your own are in informers[].attributes")
		case !valuePattern.MatchString(string(value)):
			ps.Add(at, "a header holds printable ASCII only")
		}
	}
	hasUser := slices.ContainsFunc(c.urls()[:min(1, len(c.urls()))], func(u *url.URL) bool { return u.User != nil })
	_, authorization := c.Headers["authorization"]
	ps.AtMostOne(path, settings.Key("tokenFile", c.TokenFile != ""),
		settings.Key("headers.authorization", authorization), settings.Key("url", hasUser))
}

// urls are the URLs that can be parsed, that of the endpoint first; validation reports the others.
func (c *Config) urls() (list []*url.URL) {
	for _, address := range []settings.URL{c.URL, c.DeadLetterURL} {
		if u, err := url.Parse(string(address)); err == nil && u.Host != "" {
			list = append(list, u)
		}
	}
	return list
}

// Places is where events go, without what may be secret in a URL.
func (c *Config) Places() (places []string) {
	for _, u := range c.urls() {
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		places = append(places, net.JoinHostPort(u.Hostname(), port)+u.EscapedPath())
	}
	return places
}

// Warn reports secrets in plain text.
func (c *Config) Warn(ps *settings.Report, path string) {
	c.TLS.WarnOfSkippedVerify(ps, path, c.Protection())
	for i, u := range c.urls() {
		if u.Scheme != "http" || sinks.OnLoopback(u) {
			continue
		}
		keys := settings.GivenKeys(settings.Key("tokenFile", i == 0 && c.TokenFile != ""), settings.Key("headers", i == 0 && len(c.Headers) > 0),
			settings.Key([]string{"url", "deadLetterURL"}[i], u.User != nil))
		if len(keys) > 0 {
			ps.Add(settings.Join(path, keys[0]), "is sent in plain text: use https://")
		}
	}
}

// Protection is that of the URLs.
func (c *Config) Protection() sinks.Protection {
	encrypted := true
	for _, u := range c.urls() {
		encrypted = encrypted && u.Scheme == "https"
	}
	return c.TLS.Protection(encrypted)
}

// ReadOnce is the file of authorities.
func (c *Config) ReadOnce() []string {
	if c.TLS == nil {
		return nil
	}
	return []string{c.TLS.CAFile}
}

// Templates is nil: all events go to one place.
func (*Config) Templates() []sinks.Template { return nil }

// Target is the path: replicas may have hosts of their own.
func (c *Config) Target() []string {
	u, err := url.Parse(string(c.URL))
	if err != nil {
		return nil // it is refused
	}
	return []string{u.EscapedPath()}
}

// New makes the sink.
func (c *Config) New(common sinks.Common, _ *sinks.Env) (sinks.Sink, sinks.Service, error) {
	o := Options{Config: *c, Common: common}
	if c.TokenFile != "" {
		if _, err := settings.ReadToken(c.TokenFile); err != nil {
			return nil, nil, sinks.AboutKey("tokenFile", err)
		}
	}
	if c.SigningKeyFile != "" {
		if _, err := readSigningKeys(c.SigningKeyFile); err != nil {
			return nil, nil, sinks.AboutKey("signingKeyFile", err)
		}
	}
	sink, err := New(o)
	return sink, nil, err
}

// Check asks the endpoint.
func (c *Config) Check(
	ctx context.Context, common sinks.Common, env *sinks.Env, _ func(string) []string,
) error {
	sink, _, err := c.New(common, env)
	if err != nil {
		return err
	}
	err = sink.Open(ctx)
	_ = sink.Close() // of connections that are idle
	return sinks.AboutKey("url", err)
}

// Form is that of the protocol binding.
func (c *Config) Form(common sinks.Common) (sinks.Form, error) {
	return sinks.Form{
		Prefix: "ce-", Value: event.HeaderValue, Encoding: common.Encoding,
		Destination: func(*event.Event) string {
			return "sink " + common.Name + ": POST " + c.URL.String()
		},
	}, nil
}

// Describe says where events are posted.
func (c *Config) Describe() *asyncapi.Sink {
	d := &asyncapi.Sink{
		Protocol: "http", Prefix: "ce-", MediaType: "Content-Type", ContentType: "Content-Type",
		Encode: event.HeaderValue,
	}
	if u, err := url.Parse(string(c.URL)); err == nil {
		d.Protocol, d.Servers, d.Address = u.Scheme, []string{u.Host}, cmp.Or(u.EscapedPath(), "/")
	}
	if u, err := url.Parse(string(c.DeadLetterURL)); err == nil && c.DeadLetterURL != "" {
		d.DeadLetters, d.DeadLetterServer = cmp.Or(u.EscapedPath(), "/"), u.Host
	}
	return d
}
