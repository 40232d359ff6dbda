package kube_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/kube"
)

// One limit holds for all clients together.
func TestSharedLimit(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	config, _, err := kube.RESTConfig(kubeconfigFile(t, strings.ReplaceAll(kubeconfig, "https://dev:6443", server.URL)), "", 0.001, 3)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := 0
	for range 5 { // a transport each, as each part of the bridge makes its own
		transport, err := rest.TransportFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			refused++
			continue
		}
		response.Body.Close()
	}
	if requests.Load() != 3 || refused != 2 {
		t.Errorf("%d requests went through and %d did not; want the burst of 3", requests.Load(), refused)
	}
}

// Without a limit nothing waits.
func TestNoLimit(t *testing.T) {
	config, _, err := kube.RESTConfig(kubeconfigFile(t, kubeconfig), "", 0, 0)
	if err != nil || config.WrapTransport != nil || config.QPS >= 0 {
		t.Errorf("throttled: %v, %v", config, err)
	}
}
