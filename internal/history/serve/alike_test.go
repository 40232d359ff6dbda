package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Lists of all namespaces are in the order of etcd's keys, also over pages, and in a watch.
func TestOrderOfNamespaces(t *testing.T) {
	s := newSite(t, inventory("pods/shop/a", "pods/shop/b", "pods/shop-b/a", "pods/shop1/a", "pods/shop-b/b"), serve.Config{Live: true})
	const want = "shop-b/a shop-b/b shop/a shop/b shop1/a"
	for limit := range 6 {
		var names []string
		options := metav1.ListOptions{Limit: int64(limit)}
		for {
			list, err := s.client.Resource(pods).List(t.Context(), options)
			testkit.OK(t, err)
			for i := range list.Items {
				names = append(names, list.Items[i].GetNamespace()+"/"+list.Items[i].GetName())
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("with limit %d: %s", limit, got)
		}
	}
	_, body := s.request("GET", "/api/v1/pods?watch=1&timeoutSeconds=1", nil)
	var names []string
	for line := range strings.Lines(body) {
		var event struct{ Object metav1.PartialObjectMetadata }
		testkit.OK(t, json.Unmarshal([]byte(line), &event))
		names = append(names, event.Object.Namespace+"/"+event.Object.Name)
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("a watch: %s", got)
	}
}

// What clients read beside objects is as an API server has it.
func TestHeaders(t *testing.T) {
	events := inventory("pods/shop/web", "nodes//old", "nodes//new", "deployments.apps/shop/web")
	for i, version := range []string{"", "v1.35.9", "v1.36.10+k3s1"} {
		if version != "" {
			events[i].Data = fmt.Appendf(nil, `{"metadata":{"name":%q},"status":{"nodeInfo":{"kubeletVersion":%q}}}`, events[i].Name, version)
		}
	}
	s := newSite(t, events, serve.Config{Live: true})
	get := func(path string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+path, nil)
		testkit.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		response, err := http.DefaultClient.Do(r)
		testkit.OK(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	first := get("/api", "Accept", aggregated)
	tag := first.Header.Get("ETag")
	if again := get("/api", "Accept", aggregated, "If-None-Match", tag); tag == "" || again.StatusCode != http.StatusNotModified {
		t.Errorf("the same again: %q, %s", tag, again.Status)
	}
	if first.Header.Get("Vary") != "Accept" || first.Header.Get("Cache-Control") != "public" {
		t.Errorf("%v", first.Header)
	}
	for accept, want := range map[string]int{
		"application/vnd.kubernetes.protobuf": 406, "application/vnd.kubernetes.protobuf,application/json": 200, "*/*": 200, "text/html": 406,
		"application/json;as=Other;g=meta.k8s.io;v=v1": 406, "application/json;as=Table;g=meta.k8s.io;v=v1": 200,
	} {
		if got := get("/api/v1/pods", "Accept", accept).StatusCode; got != want {
			t.Errorf("Accept %s: %d, want %d", accept, got, want)
		}
	}
	if got := get("/apis/apps/v1beta1/deployments"); got.StatusCode != http.StatusNotAcceptable {
		t.Errorf("Deployments in another version: %s", got.Status)
	}
	var version map[string]string
	testkit.OK(t, json.NewDecoder(get("/version").Body).Decode(&version))
	if version["gitVersion"] != "v1.36.10+history" || version["minor"] != "36" {
		t.Errorf("%v", version)
	}
}

// The first page of a long list, less what the client takes to read it.
func BenchmarkFirstPage(b *testing.B) {
	const all, limit = 100_000, 500
	dir := b.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(b, err)
	defer db.Close()
	objects := make([]string, all)
	for i := range objects {
		objects[i] = fmt.Sprintf("pods/ns-%d/web-%d", i%100, i)
	}
	text, err := os.ReadFile("../../../test/bench/apiserver/pod.json")
	testkit.OK(b, err)
	var pod bytes.Buffer
	testkit.OK(b, json.Compact(&pod, text))
	for page := range slices.Chunk(inventory(objects...), 1000) {
		var list []*event.Event
		for i := range page {
			page[i].Data = bytes.ReplaceAll(pod.Bytes(), []byte("NAMENAME"), []byte(page[i].Name))
			list = append(list, &page[i])
		}
		_, err := db.Writer.Append(b.Context(), list)
		testkit.OK(b, err)
	}
	handler, err := serve.New(serve.Config{
		Open:    func() (*query.Questions, func(), error) { return db.Questions, func() {}, nil },
		Cluster: "prod", Live: true, Access: []serve.Access{serve.Everything(token)},
	})
	testkit.OK(b, err)
	for name, accept := range map[string]string{"objects": "application/json", "table": "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/api/v1/pods?limit=%d", limit), nil)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Accept", accept)
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*limit), "µs/object")
		})
	}
}
