package reflector

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Client is how an API server is reached. It may be shared by any number of reflectors.
type Client struct {
	// HTTP carries credentials and TLS. It has no Timeout: that would cut every watch.
	HTTP *http.Client
	// Base is the server's URL, with a path where the server lies behind one.
	Base *url.URL
}

// NewClient makes a Client with client-go's transport: its credentials, exec plugins, proxies, User-Agent and HTTP/2 health checks.
// Requests are not throttled by QPS and Burst: a watch is one request, and lists are paced by the reader.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("API server address %q: %w", cfg.Host, err)
	}
	if cfg.Dial == nil {
		// client-go shares a transport among all who ask with the same settings, but not one with a dialer of its own: tuning would
		// race with a request of theirs.
		cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go's
	}
	// Not rest.HTTPClientFor, which may give http.DefaultClient: somebody else may set a Timeout on that.
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for API server %s: %w", base.Host, err)
	}
	tune(transport)
	return &Client{HTTP: &http.Client{Transport: transport}, Base: base}, nil
}

// tune lets the API server send much at once: reading costs a third less CPU for each frame. What waits unread is bounded, for each watch, by
// the receive buffer, which is a quarter of Go's default.
func tune(transport http.RoundTripper) {
	for {
		switch t := transport.(type) {
		case *http.Transport:
			t.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: 256 << 10, MaxReceiveBufferPerStream: 1 << 20}
			return
		case utilnet.RoundTripperWrapper:
			transport = t.WrappedRoundTripper()
		default:
			return // one of the user's own making
		}
	}
}
