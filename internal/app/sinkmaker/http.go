package sinkmaker

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
)

// httpKind posts to an endpoint.
type httpKind struct {
	sink *config.Sink
	*config.HTTP
}

func (httpKind) key() string { return "http" }

// Target is the path: replicas may have hosts of their own.
func (k httpKind) target() []string {
	u, err := url.Parse(string(k.URL))
	if err != nil {
		return nil // it is refused
	}
	return []string{u.EscapedPath()}
}

func (k httpKind) make(*Maker, *slog.Logger) (sinks.Sink, Service, error) {
	encryption, err := tlsConfig(k.TLS)
	if err != nil {
		return nil, nil, err
	}
	headers := map[string]string{}
	for name, value := range k.Headers {
		headers[name] = string(value)
	}
	made := http.Config{
		URL: string(k.URL), DeadLetterURL: string(k.DeadLetterURL), Encoding: k.sink.Encoding,
		Headers: headers, TLS: encryption, Timeout: k.Timeout, Concurrency: k.Concurrency,
	}
	if k.TokenFile != "" {
		if _, err := k.token(); err != nil {
			return nil, nil, aboutKey("tokenFile", err)
		}
		made.Token = k.token
	}
	sink, err := http.New(made)
	return sink, nil, err
}

// Reader reads the file each time, so that a renewed token is used.
func (k httpKind) token() (string, error) {
	token, err := config.ReadSecret("", k.TokenFile)
	return string(token), err
}

func (k httpKind) check(ctx context.Context, m *Maker, _ func(string) []string) error {
	sink, _, err := k.make(m, m.Log)
	if err != nil {
		return err
	}
	err = sink.Open(ctx)
	_ = sink.Close() // of connections that are idle
	return aboutKey("url", err)
}

func (k httpKind) sample() (Form, error) {
	return Form{
		Prefix: "ce-", Value: event.HeaderValue, Structured: k.sink.Encoding == "structured",
		Destination: func(*event.Event) string {
			return "sink " + k.sink.Name + ": POST " + k.URL.String()
		},
	}, nil
}

func (k httpKind) describe() *asyncapi.Sink {
	d := &asyncapi.Sink{
		Protocol: "http", Prefix: "ce-", MediaType: "Content-Type", ContentType: "Content-Type",
		Encode: event.HeaderValue,
	}
	if u, err := url.Parse(string(k.URL)); err == nil {
		d.Protocol, d.Servers, d.Address = u.Scheme, []string{u.Host}, cmp.Or(u.EscapedPath(), "/")
	}
	if u, err := url.Parse(string(k.DeadLetterURL)); err == nil && k.DeadLetterURL != "" {
		d.DeadLetters, d.DeadLetterServer = cmp.Or(u.EscapedPath(), "/"), u.Host
	}
	return d
}
