package kube

import (
	"net/http"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// throttle bounds the requests of all clients made of the configuration together: lists, watches
// and discovery alike, whichever client-go package sends them. client-go's own limit is one for
// each REST client, and none for bare transports. A watch counts once, when it is opened. Zero or
// less is no limit.
func throttle(config *rest.Config, qps float32, burst int) {
	config.QPS, config.Burst = -1, 0 // not a second time by client-go
	if qps <= 0 {
		return
	}
	limiter := rate.NewLimiter(rate.Limit(qps), max(burst, 1))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &throttled{next, limiter} })
}

// throttled waits for its turn before each request.
type throttled struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip blocks until the request may go, or its context has ended.
func (t *throttled) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.limiter.Wait(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must, also on errors
		}
		return nil, err
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go look through to the transport, to cancel requests and to close
// idle connections.
func (t *throttled) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections is passed on: http.Client calls it on its own transport only.
func (t *throttled) CloseIdleConnections() {
	type closer interface{ CloseIdleConnections() }
	if c, ok := t.next.(closer); ok {
		c.CloseIdleConnections()
	}
}
