package testkit_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	pods    = testkit.Pods
	widgets = resource.Type{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
)

// client-go's own informer is the independent witness that the server speaks as an API server does.
func TestClientGoInformer(t *testing.T) {
	tests := map[string]testkit.Features{
		"by WatchList":         {},
		"by pages":             {NoWatchList: true},
		"compressed, indented": {Gzip: true, Pretty: true},
	}
	for name, features := range tests {
		for _, typ := range []resource.Type{pods, widgets} {
			t.Run(name+" "+typ.String(), func(t *testing.T) {
				s := testkit.NewServer(t, typ)
				s.SetFeatures(features)
				s.Create("shop/a", nil)
				s.Create("shop/b", nil)
				store := startInformer(t, s, typ)
				waitFor(t, store, "shop/a@98", "shop/b@99")
				s.Create("shop/c", nil)
				s.Update("shop/a", nil)
				s.Delete("shop/b")
				waitFor(t, store, "shop/a@101", "shop/c@100")
				s.Delete("shop/c")
				s.Expire()
				s.Streams.Error(testkit.NewStatus(http.StatusGone, metav1.StatusReasonExpired))
				s.Create("shop/d", nil)
				waitFor(t, store, "shop/a@101", "shop/d@104")
			})
		}
	}
}

func startInformer(t *testing.T, s *testkit.Server, typ resource.Type) cache.Store {
	t.Helper()
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	collection := client.Resource(typ.GVR())
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return collection.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return collection.Watch(ctx, o)
		},
	}, client)
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: &unstructured.Unstructured{}, Handler: cache.ResourceEventHandlerFuncs{},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return store
}

func waitFor(t *testing.T, store cache.Store, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		got = nil
		for _, o := range store.List() {
			m := o.(metav1.Object)
			got = append(got, m.GetNamespace()+"/"+m.GetName()+"@"+m.GetResourceVersion())
		}
		if slices.Sort(got); slices.Equal(got, want) {
			return
		}
	}
	t.Errorf("the informer has %q, want %q", got, want)
}

func get(t *testing.T, s *testkit.Server, query string) (int, string) {
	t.Helper()
	u := s.URL().JoinPath(pods.CollectionPath(""))
	u.RawQuery = query
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.HTTP().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // what came before a cut is what the tests look at
	return resp.StatusCode, string(body)
}

// Options are checked as by an API server.
func TestOptionChecks(t *testing.T) {
	s := testkit.NewServer(t, pods)
	s.Create("shop/a", nil)
	s.Expire()
	s.Create("shop/b", nil)
	tests := []struct {
		name, query string
		want        int
	}{
		{"a consistent list", "", 200},
		{"a page", "limit=1", 200},
		{"a limit and a version mean exactly that version", "limit=1&resourceVersion=98", 200},
		{"exactly a version that is forgotten", "limit=1&resourceVersion=97", 410},
		{"not older than a version", "limit=1&resourceVersion=98&resourceVersionMatch=NotOlderThan", 200},
		{"a version from the future", "resourceVersion=500&resourceVersionMatch=NotOlderThan", 504},
		{"a match without a version", "resourceVersionMatch=NotOlderThan", 422},
		{"an unknown token", "continue=x", 410},
		{"a token and a version", "continue=x&resourceVersion=98", 422},
		{"initial events without a match", "watch=true&sendInitialEvents=true", 422},
		{"a watch with a match", "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=98", 422},
		{"a bad selector", "labelSelector=%3D", 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, body := get(t, s, tt.query); got != tt.want {
				t.Errorf("%d, want %d: %s", got, tt.want, body)
			}
		})
	}
}

// A watch replays its history, and is ended in time.
func TestWatchReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testkit.NewServer(t, pods)
		s.Create("shop/a", nil)
		s.Update("shop/a", nil)
		s.Delete("shop/a")
		start := time.Now()
		_, body := get(t, s, "watch=true&resourceVersion=98&timeoutSeconds=30")
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("it took %s", took)
		}
		var types []string
		for d := json.NewDecoder(strings.NewReader(body)); d.More(); {
			var f struct {
				Type   string
				Object struct {
					Metadata struct{ ResourceVersion string }
				}
			}
			if err := d.Decode(&f); err != nil {
				t.Fatal(err)
			}
			types = append(types, f.Type+" "+f.Object.Metadata.ResourceVersion)
		}
		if want := []string{"MODIFIED 99", "DELETED 100"}; !slices.Equal(types, want) {
			t.Errorf("%q, want %q", types, want)
		}
	})
}

// Rewind brings back what was.
func TestRewindStates(t *testing.T) {
	s := testkit.NewServer(t, pods)
	s.Create("shop/a", nil)
	then := s.Version()
	_, before := get(t, s, "")
	s.Update("shop/a", func(o map[string]any) { o["spec"] = map[string]any{"nodeName": "x"} })
	s.Create("shop/b", nil)
	s.Delete("shop/a")
	s.Rewind(then)
	if _, after := get(t, s, ""); after != before {
		t.Errorf("%s\nwas %s", after, before)
	}
}

// Faults meet the requests that they are for.
func TestFaultMatching(t *testing.T) {
	s := testkit.NewServer(t, pods)
	s.Faults.RefuseBusy(testkit.Probes, 1, time.Second)
	s.Faults.CutAfter(testkit.Lists, 1, 10)
	if code, _ := get(t, s, "limit=1"); code != http.StatusTooManyRequests {
		t.Errorf("the probe: %d", code)
	}
	if _, body := get(t, s, ""); len(body) != 10 {
		t.Errorf("the list: %s", body)
	}
	if code, body := get(t, s, ""); code != 200 || len(body) <= 10 {
		t.Errorf("the next list: %d %s", code, body)
	}
	if got := len(s.Requests(testkit.Any)); got != 3 {
		t.Errorf("%d requests", got)
	}
}
