package kube_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/kube"
)

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// widgets is the group of a CRD with two versions, of which the older is preferred, as both
// discovery formats report it.
const (
	widgetsAggregated = `{"metadata":{"name":"example.com"},"versions":[
	 {"version":"v1","freshness":"Current","resources":[
	  {"resource":"widgets","responseKind":{"group":"example.com","version":"v1","kind":"Widget"},"scope":"Namespaced","singularResource":"widget","shortNames":["wd","po"],"verbs":["get","list","watch"]},
	  {"resource":"pods","responseKind":{"group":"example.com","version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list","watch"]}]},
	 {"version":"v2","freshness":"Current","resources":[
	  {"resource":"widgets","responseKind":{"group":"example.com","version":"v2","kind":"Widget"},"scope":"Namespaced","singularResource":"widget","shortNames":["wd"],"verbs":["get","list","watch"]},
	  {"resource":"gadgets","responseKind":{"group":"example.com","version":"v2","kind":"Gadget"},"scope":"Cluster","singularResource":"gadget","verbs":["get","list","watch"]}]}]}`
	widgetsGroup = `{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"},{"groupVersion":"example.com/v2","version":"v2"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}`
	widgetsV1    = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
	  {"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","shortNames":["wd","po"],"verbs":["get","list","watch"]},
	  {"name":"widgets/status","singularName":"","namespaced":true,"kind":"Widget","verbs":["get"]},
	  {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`
	widgetsV2 = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v2","resources":[
	  {"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","shortNames":["wd"],"verbs":["get","list","watch"]},
	  {"name":"gadgets","singularName":"gadget","namespaced":false,"kind":"Gadget","verbs":["get","list","watch"]}]}`

	metricsStale = `{"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}`
	metricsGroup = `{"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}}`
)

// apiServer answers discovery as Kubernetes 1.36 does, with a CRD's group and an aggregated API
// that is down.
func apiServer(t *testing.T, format string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	serve := func(path, contentType, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write([]byte(body))
		})
	}
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
	})
	if format == "aggregated" {
		serve("/api", aggregated, read(t, "testdata/aggregated_api.json"))
		serve("/apis", aggregated, appendTo(t, read(t, "testdata/aggregated_apis.json"), "items", widgetsAggregated, metricsStale))
		return mux
	}
	entries, err := os.ReadDir("testdata/legacy")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := "/" + strings.ReplaceAll(strings.TrimSuffix(e.Name(), ".json"), "__", "/")
		if path != "/apis" {
			serve(path, "application/json", read(t, "testdata/legacy/"+e.Name()))
		}
	}
	serve("/apis", "application/json", appendTo(t, read(t, "testdata/legacy/apis.json"), "groups", widgetsGroup, metricsGroup))
	serve("/apis/example.com/v1", "application/json", widgetsV1)
	serve("/apis/example.com/v2", "application/json", widgetsV2)
	return mux
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// appendTo adds items to a list in a JSON document.
func appendTo(t *testing.T, doc, list string, items ...string) string {
	t.Helper()
	var parsed map[string]any
	if err := json.Unmarshal([]byte(doc), &parsed); err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		parsed[list] = append(parsed[list].([]any), json.RawMessage(item))
	}
	out, err := json.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func newResolver(t *testing.T, handler http.Handler) *kube.Resolver {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	resolver, err := kube.NewResolver(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return resolver
}
