package app

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/settings"
)

// A change waits for what the API server can't report now.
// What an API server can't answer just now is no mistake of the file.
func TestReloadDiscoveryFailure(t *testing.T) {
	answers := map[string]string{
		"/readyz": "ok",
		"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"metrics.k8s.io",
			"versions":[{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}],
			"preferredVersion":{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}}]}`,
	}
	for name, test := range map[string]struct {
		starting bool
		resource string
		later    bool
	}{
		"a group that does not answer":        {resource: "nodes.metrics.k8s.io", later: true},
		"an API server that is just starting": {starting: true, resource: "things.example.org", later: true},
		"a mistake":                           {resource: "things.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer, ok := answers[r.URL.Path]
				if !ok || test.starting && r.URL.Path == "/readyz" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer s.Close()
			resolver, err := kube.NewResolver(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.Load(config.Options{File: "bridge.yaml", Data: []byte("informers: [{name: a, resources: [" + test.resource + "]}]\nsinks: [{name: s, stdout: {}}]\n")})
			if err != nil {
				t.Fatal(err)
			}
			r := &reloader{assembly: &assembly{planner: &planner{resolver: resolver}}}
			_, err = r.discover(t.Context(), c)
			if err == nil || errors.Is(err, errNotNow) != test.later || (len(settings.Problems(err)) == 0) != test.later {
				t.Errorf("%v; %d problems of the file", err, len(settings.Problems(err)))
			}
		})
	}
}
