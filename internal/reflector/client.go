package reflector

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"

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
	// Not rest.HTTPClientFor, which may give http.DefaultClient: somebody else may set a Timeout on that.
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for API server %s: %w", base.Host, err)
	}
	return &Client{HTTP: &http.Client{Transport: transport}, Base: base}, nil
}
