package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/kube"
)

// refuse answers everything with a status.
func refuse(code int32, reason metav1.StatusReason, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code))
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
			Details: &metav1.StatusDetails{Kind: "deployments", Group: "apps"},
		})
	})
}

// Errors say what to do.
func TestErrorRemedies(t *testing.T) {
	trusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	trusted.Config.ErrorLog = log.New(t.Output(), "", 0) // the failed handshake
	trusted.StartTLS()
	defer trusted.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	expired := httptest.NewServer(refuse(401, metav1.StatusReasonUnauthorized, "Unauthorized"))
	defer expired.Close()
	forbidden := httptest.NewServer(refuse(403, metav1.StatusReasonForbidden, `deployments.apps is forbidden: User "u" cannot list resource "deployments"`))
	defer forbidden.Close()
	starting := httptest.NewServer(refuse(503, metav1.StatusReasonServiceUnavailable, "storage is (re)initializing"))
	defer starting.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotImplemented)
		_, _ = io.WriteString(w, "<html>"+strings.Repeat("a proxy ", 20)+"\n<body>not here</body></html>")
	}))
	defer page.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cut.Close()
	for _, test := range []struct {
		name, host string
		class      kube.Class
		want       []string
	}{
		{"nobody listens", gone.URL, kube.Unreachable, []string{gone.URL, "is the cluster running"}},
		{"no such host", "http://no-such-host.invalid", kube.Unreachable, []string{"no-such-host.invalid", "is the address in the kubeconfig right"}},
		{"the connection is cut", cut.URL, kube.Unreachable, []string{"nothing answers at"}},
		{"it is starting", starting.URL, kube.Unavailable, []string{"storage is (re)initializing", "can't serve now"}},
		{"a page of a proxy", page.URL, kube.Unavailable, []string{"the answer is 501 Not Implemented: <html>a proxy a proxy", "a proxy a …; ", "can't serve now"}},
		{"another certificate", trusted.URL, kube.Untrusted, []string{"is not one that the kubeconfig trusts"}},
		{"expired credentials", expired.URL, kube.Unauthenticated, []string{"expired or were revoked", "log in again"}},
		{"no right", forbidden.URL, kube.Forbidden, []string{`cannot list resource "deployments"`, "kubectl auth can-i watch deployments.apps", "ClusterRole"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			resolver, err := kube.NewResolver(&rest.Config{Host: test.host})
			if err != nil {
				t.Fatal(err)
			}
			_, err = resolver.Discover(t.Context())
			if kube.Classify(err) != test.class {
				t.Errorf("class %v of %v, want %v", kube.Classify(err), err, test.class)
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

// A server that hangs is unreachable.
func TestHangingServer(t *testing.T) {
	resolver := newResolver(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := resolver.Discover(ctx); kube.Classify(err) != kube.Unreachable {
		t.Errorf("got class %v: %v", kube.Classify(err), err)
	}
}

// The end of the caller's context is no fault of the server.
func TestCancelledCaller(t *testing.T) {
	resolver := newResolver(t, http.NotFoundHandler())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := resolver.Discover(ctx); !errors.Is(err, context.Canceled) || kube.Classify(err) != kube.Other {
		t.Errorf("got %v", err)
	}
	if kube.Explain(nil, "h") != nil {
		t.Error("no error was made one")
	}
	odd := errors.New("odd")
	if !errors.Is(kube.Explain(odd, "h"), odd) {
		t.Error("an unknown error was changed")
	}
}

// The cluster is identified by the namespace kube-system.
func TestClusterID(t *testing.T) {
	const path = "GET /api/v1/namespaces/kube-system"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
		failed  bool
	}{
		"its uid":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"metadata":{"uid":"u-1"}}`)) }, "u-1", false},
		"without rights": {refuse(403, metav1.StatusReasonForbidden, "no").ServeHTTP, "", false},
		"without one":    {refuse(404, metav1.StatusReasonNotFound, "no").ServeHTTP, "", false},
		"broken":         {refuse(500, metav1.StatusReasonInternalError, "no").ServeHTTP, "", true},
		"nonsense":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc(path, test.handler)
			got, err := newResolver(t, mux).ClusterID(t.Context())
			if got != test.want || (err != nil) != test.failed {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
