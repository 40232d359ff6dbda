package kube_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/kube"
)

// document answers a request with a document of a content type.
func document(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}
}

// down answers as an API server whose aggregated API does not answer.
func down(w http.ResponseWriter, r *http.Request) {
	refuse(503, metav1.StatusReasonServiceUnavailable, "nobody answers").ServeHTTP(w, r)
}

func TestDiscovery(t *testing.T) {
	const (
		beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
		core = `{"items":[{"metadata":{},"versions":[{"version":"v1","freshness":"Current",` +
			`"resources":[` +
			`{"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},` +
			`"scope":"Namespaced","singularResource":"pod","verbs":["list","watch"]},` +
			`{"resource":"unnamed","scope":"Cluster","verbs":["list","watch"]}]}]}]}`
		all       = `{"items":[` + widgetsAggregated + `]}`
		coreGroup = `{"kind":"APIVersions","versions":["v1"]}`
		coreV1    = `{"groupVersion":"v1","resources":[{"name":"pods","singularName":"pod",` +
			`"namespaced":true,"kind":"Pod","verbs":["list","watch"]}]}`
		allGroups = `{"kind":"APIGroupList","groups":[` + widgetsGroup + `]}`
		widgets   = "pods.v1 gadgets.example.com/v2 pods.example.com/v1 widgets.example.com/v1"
	)
	plain := map[string]http.HandlerFunc{
		"/api": document("application/json", coreGroup), "/apis": document("application/json", allGroups),
		"/api/v1":              document("application/json", coreV1),
		"/apis/example.com/v1": document("application/json", widgetsV1),
		"/apis/example.com/v2": document("application/json", widgetsV2),
	}
	with := func(base map[string]http.HandlerFunc, path string, h http.HandlerFunc) map[string]http.HandlerFunc {
		changed := map[string]http.HandlerFunc{path: h}
		for path, h := range base {
			if changed[path] == nil {
				changed[path] = h
			}
		}
		return changed
	}
	for name, test := range map[string]struct {
		answers     map[string]http.HandlerFunc
		want        string
		unavailable map[string]string // by group version, a part of the reason
		requests    int
		err         string // a part of it, "" for none
	}{
		"everything in one document": {
			answers: map[string]http.HandlerFunc{
				"/api": document(aggregated, core), "/apis": document(aggregated, all),
			},
			want: widgets, requests: 2,
		},
		"parameters in another order, and one more": {
			answers: map[string]http.HandlerFunc{
				"/api": document("application/json;as=APIGroupDiscoveryList;v=v2;charset=utf-8;"+
					"g=apidiscovery.k8s.io", core),
				"/apis": document(aggregated, all),
			},
			want: widgets, requests: 2,
		},
		"a server from 1.27 to 1.29": {
			answers: map[string]http.HandlerFunc{
				"/api": document(beta, core), "/apis": document(beta, all),
			},
			want: widgets, requests: 2,
		},
		"an older one": {answers: plain, want: widgets, requests: 5},
		"an older one behind one that knows": {
			answers: with(plain, "/api", document(aggregated, core)),
			want:    widgets, requests: 4,
		},
		"only aggregated APIs": {
			answers: map[string]http.HandlerFunc{
				"/api": http.NotFound, "/apis": document(aggregated, all),
			},
			want: "gadgets.example.com/v2 pods.example.com/v1 widgets.example.com/v1", requests: 2,
		},
		"a stale version": {
			answers: map[string]http.HandlerFunc{
				"/api": document(aggregated, core),
				"/apis": document(aggregated,
					`{"items":[`+widgetsAggregated+`,`+metricsStale+`]}`),
			},
			want: widgets, requests: 4,
			unavailable: map[string]string{"metrics.k8s.io/v1beta1": "does not answer"},
		},
		"a stale version, and the other is preferred then": {
			answers: map[string]http.HandlerFunc{
				"/api": http.NotFound,
				"/apis": document(aggregated, `{"items":[`+strings.Replace(widgetsAggregated,
					`"Current"`, `"Stale"`, 1)+`]}`),
			},
			want: "gadgets.example.com/v2 widgets.example.com/v2", requests: 4,
			unavailable: map[string]string{"example.com/v1": "does not answer"},
		},
		"a version that does not answer": {
			answers: with(plain, "/apis/example.com/v2", down), requests: 10,
			want:        "pods.v1 pods.example.com/v1 widgets.example.com/v1",
			unavailable: map[string]string{"example.com/v2": "nobody answers"},
		},
		"a version that is there the second time": {
			answers: with(plain, "/apis/example.com/v2", once(http.NotFound,
				document("application/json", widgetsV2))),
			want: widgets, requests: 10,
		},
		"no group answers": {
			answers: map[string]http.HandlerFunc{
				"/api": document("application/json", coreGroup), "/api/v1": down,
				"/apis": document("application/json", `{"groups":[]}`),
			},
			requests: 3, err: "nobody answers",
		},
		"no right": {
			answers: with(plain, "/apis", refuse(403, metav1.StatusReasonForbidden,
				`User "u" cannot get path "/apis"`).ServeHTTP),
			requests: 2, err: `User "u" cannot get path "/apis"`,
		},
		"nonsense": {
			answers: with(plain, "/apis", document("text/html", "<html>")), requests: 2,
			err: "invalid character",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			requests := 0
			resolver := newResolver(t, http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					requests++
					mu.Unlock()
					answer := test.answers[r.URL.Path]
					if answer == nil {
						answer = http.NotFound
					}
					answer(w, r)
				}))
			c, err := resolver.Discover(t.Context())
			if requests != test.requests {
				t.Errorf("%d requests, want %d", requests, test.requests)
			}
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			types, err := c.Resolve(kube.Selection{Names: []string{"*"}})
			got := strings.Fields(texts(types))
			want := strings.Fields(test.want)
			slices.Sort(got)
			slices.Sort(want)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
			if len(c.Unavailable()) != len(test.unavailable) {
				t.Errorf("unavailable: %v", c.Unavailable())
			}
			for gv, why := range test.unavailable {
				parsed, _ := schema.ParseGroupVersion(gv)
				if err := c.Unavailable()[parsed]; err == nil ||
					!strings.Contains(err.Error(), why) {
					t.Errorf("%s: got %v, want %q in it", gv, err, why)
				}
			}
		})
	}
}

// once answers the first request in one way, and all others in another.
func once(first, then http.HandlerFunc) http.HandlerFunc {
	var asked sync.Once
	return func(w http.ResponseWriter, r *http.Request) {
		answer := then
		asked.Do(func() { answer = first })
		answer(w, r)
	}
}

// Discovery asks for the one aggregated document first.
func TestAggregatedDiscovery(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{path...}", func(w http.ResponseWriter, r *http.Request) {
		want := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
			"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
			"application/json"
		if got := r.Header.Get("Accept"); got != want {
			t.Errorf("%s: accepts %s", r.URL.Path, got)
		}
		w.Header().Set("Content-Type", aggregated)
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	if _, err := newResolver(t, mux).Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestDiscoveryLikeClientGo compares the two with documents of a real API server.
func TestDiscoveryLikeClientGo(t *testing.T) {
	for _, format := range []string{"aggregated", "legacy"} {
		t.Run(format, func(t *testing.T) {
			server := httptest.NewServer(apiServer(t, format))
			defer server.Close()
			config := &rest.Config{Host: server.URL, QPS: -1}
			client, err := discovery.NewDiscoveryClientForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			groups, lists, err := client.ServerGroupsAndResourcesWithContext(t.Context())
			partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
			if !ok {
				t.Fatalf("got %v, want that a group is unavailable", err)
			}
			resources := map[schema.GroupVersion][]metav1.APIResource{}
			for _, list := range lists {
				gv, err := schema.ParseGroupVersion(list.GroupVersion)
				if err != nil {
					t.Fatal(err)
				}
				resources[gv] = list.APIResources
			}
			want := kube.CatalogOf(groups, resources, partial.Groups)
			resolver, err := kube.NewResolver(config)
			if err != nil {
				t.Fatal(err)
			}
			got, err := resolver.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Texts()) < 60 || !slices.Equal(got.Texts(), want.Texts()) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got.Texts(), "\n"),
					strings.Join(want.Texts(), "\n"))
			}
			if !slices.Equal(slices.Collect(maps.Keys(got.Unavailable())),
				slices.Collect(maps.Keys(want.Unavailable()))) {
				t.Errorf("unavailable: got %v, want %v", got.Unavailable(), want.Unavailable())
			}
		})
	}
}
