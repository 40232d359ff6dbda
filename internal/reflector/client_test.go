package reflector_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/testkit"
)

// NewClient does what the configuration says.
// Over real sockets: TLS, HTTP/2, a bearer token, and a server that lies behind a path.
func TestNewClient(t *testing.T) {
	kube := testkit.NewServer(t, pods)
	kube.Create("shop/a", nil)
	var proto, token, agent atomic.Value
	mux := http.NewServeMux()
	mux.Handle("/clusters/c1/", http.StripPrefix("/clusters/c1",
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proto.Store(r.Proto)
			token.Store(r.Header.Get("Authorization"))
			agent.Store(r.Header.Get("User-Agent"))
			kube.ServeHTTP(w, r)
		})))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	client, err := reflector.NewClient(&rest.Config{
		Host:        server.URL + "/clusters/c1",
		BearerToken: "token",
		UserAgent:   "bridge/test",
		Timeout:     time.Millisecond, // of single requests, not of watches
		TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{
				Type:  "CERTIFICATE",
				Bytes: server.Certificate().Raw,
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	store := &recorder{}
	refl, err := reflector.New(reflector.Config{
		Client: client, Store: store, Type: pods,
		Snapshot: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- refl.Run(ctx) }()
	testkit.Eventually(t, "the first list is read", func() bool { return refl.Status().Synced })
	kube.Create("shop/b", nil)
	testkit.Eventually(t, "the watch is read", func() bool { return refl.Status().Version == "99" })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := strings.Join(store.take(), ", "); got != "begin initial, replace shop/a@98, end "+
		"98, add shop/b@99" {
		t.Errorf("the store got %s", got)
	}
	if proto.Load() != "HTTP/2.0" || token.Load() != "Bearer token" ||
		agent.Load() != "bridge/test" {
		t.Errorf("proto, token, agent = %v, %v, %v", proto.Load(), token.Load(), agent.Load())
	}
	client.HTTP.CloseIdleConnections()
}

// base is what is below client-go's wrappers.
func base(t *testing.T, transport http.RoundTripper) *http.Transport {
	t.Helper()
	for {
		wrapper, ok := transport.(utilnet.RoundTripperWrapper)
		if !ok {
			return transport.(*http.Transport)
		}
		transport = wrapper.WrappedRoundTripper()
	}
}

// The transport is tuned, and is not the one of others.
func TestTransport(t *testing.T) {
	cfg := &rest.Config{
		Host: "https://127.0.0.1:1", BearerToken: "token",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	others, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := reflector.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if h2 := base(t, client.HTTP.Transport).HTTP2; h2 == nil || h2.MaxReadFrameSize < 1<<16 ||
		h2.MaxReceiveBufferPerStream > 1<<20 {
		t.Errorf("HTTP2 = %+v", h2)
	}
	if h2 := base(t, others).HTTP2; h2 != nil {
		t.Errorf("the transport that others share has HTTP2 = %+v", h2)
	}
}

// New checks its configuration.
func TestConfigProblems(t *testing.T) {
	_, err := reflector.New(reflector.Config{
		From: "0", Limits: reflector.Limits{WatchTimeout: time.Millisecond},
	})
	if err == nil {
		t.Fatal("New took an empty configuration")
	}
	for _, want := range []string{
		"no Client", "no Store", "Type is incomplete", `From is "0"`,
		"WatchTimeout",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	client := &reflector.Client{HTTP: &http.Client{Timeout: time.Second}, Base: nil}
	if _, err := reflector.New(reflector.Config{
		Client: client, Store: &recorder{},
		Type: pods,
	}); err == nil || !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("New took a client with a timeout: %v", err)
	}
}
