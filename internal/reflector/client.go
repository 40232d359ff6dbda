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
	// HTTP has credentials and TLS. It has no Timeout: that would cut every watch.
	HTTP *http.Client
	// Base is the server's URL, with a path where the server is behind one.
	Base *url.URL
}

// NewClient makes a Client with client-go's transport: its credentials, exec plugins, proxies,
// User-Agent and HTTP/2 health checks. Requests are not throttled by QPS and Burst: a watch is one
// request, and lists are paced by the reader.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("API server address %q: %w", cfg.Host, err)
	}
	if cfg.Dial == nil {
		// client-go shares a transport among all callers with the same settings, but not one with a
		// dialer of its own: tuning would race with their requests.
		// as client-go's
		cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	// Not rest.HTTPClientFor, which may return http.DefaultClient: somebody else may set a Timeout
	// on that.
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for API server %s: %w", base.Host, err)
	}
	tune(transport)
	return &Client{HTTP: &http.Client{Transport: transport}, Base: base}, nil
}

// tune lets the API server send much at once: reading costs a third less CPU for each frame. The
// unread backlog of each watch is bounded by the receive buffer, which is a quarter of Go's
// default.
func tune(transport http.RoundTripper) {
	for {
		switch t := transport.(type) {
		case *http.Transport:
			t.HTTP2 = &http.HTTP2Config{
				MaxReadFrameSize:          256 << 10,
				MaxReceiveBufferPerStream: 1 << 20,
			}
			return
		case utilnet.RoundTripperWrapper:
			transport = t.WrappedRoundTripper()
		default:
			return // a transport of the user
		}
	}
}
