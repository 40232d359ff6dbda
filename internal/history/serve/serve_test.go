package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

const token = "the-token"

// site is a served history.
type site struct {
	t      *testing.T
	db     *history.DB
	server *httptest.Server
	client dynamic.Interface
}

// pods of testkit's events.
var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func newSite(t *testing.T, events []event.Event, cfg serve.Config) *site {
	t.Helper()
	dir := t.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	s := &site{t: t, db: db}
	s.append(events)
	source, err := serve.NewSharedHistory(dir, cfg.Live)
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, source.Close()) })
	cfg.Open, cfg.Cluster, cfg.Poll = source.Open, "prod", 10*time.Millisecond
	cfg.Access = append(cfg.Access, serve.Everything(token))
	handler, err := serve.New(cfg)
	testkit.OK(t, err)
	s.server = httptest.NewServer(handler)
	t.Cleanup(s.server.Close)
	s.client, err = dynamic.NewForConfig(s.config())
	testkit.OK(t, err)
	return s
}

func (s *site) config() *rest.Config {
	return &rest.Config{Host: s.server.URL, BearerToken: token, QPS: -1}
}

func (s *site) append(events []event.Event) {
	s.t.Helper()
	var list []*event.Event
	for i := range events {
		list = append(list, &events[i])
	}
	_, err := s.db.Writer.Append(s.t.Context(), list)
	testkit.OK(s.t, err)
}

// request asks with headers, and gives the code and the body.
func (s *site) request(method, path string, headers map[string]string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, nil)
	testkit.OK(s.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	testkit.OK(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.OK(s.t, err)
	return response.StatusCode, string(body)
}

// script are events of a cluster, a second apart. Objects are parsed again, so that they name
// themselves.
func script(t *testing.T, seed uint64, objects, changes int) []event.Event {
	t.Helper()
	events := testkit.Events(t, seed, objects, changes)
	for i := range events {
		events[i].Time = events[0].Observed.Add(time.Duration(i) * time.Second)
	}
	return events
}

// stateOf is what a client must see of the pods at a time: name and version.
func stateOf(events []event.Event, at time.Time) map[string]string {
	state := map[string]string{}
	for i := range events {
		e := &events[i]
		switch key := e.Namespace + "/" + e.Name; {
		case e.Resource != "pods" || e.AboutInformer() || !at.IsZero() && e.Time.After(at):
		case e.Op == event.Deleted:
			delete(state, key)
		default:
			state[key] = e.ResourceVersion
		}
	}
	return state
}

func seen(items []unstructured.Unstructured) map[string]string {
	state := map[string]string{}
	for i := range items {
		state[items[i].GetNamespace()+"/"+items[i].GetName()] = items[i].GetResourceVersion()
	}
	return state
}

func TestServe(t *testing.T) {
	events := script(t, 3, 30, 20)
	middle := events[len(events)/2].Time
	s := newSite(t, events, serve.Config{At: query.Point{At: middle}})
	want := stateOf(events, middle)
	t.Run("a list is the state at the point", func(t *testing.T) {
		list, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{})
		testkit.OK(t, err)
		if got := seen(list.Items); !maps.Equal(got, want) || len(want) == 0 {
			t.Errorf("%v, want %v", got, want)
		}
		if list.GetKind() != "PodList" || list.GetResourceVersion() == "" {
			t.Errorf("%s of version %q", list.GetKind(), list.GetResourceVersion())
		}
	})
	t.Run("pages make the same list", func(t *testing.T) {
		got := map[string]string{}
		o := metav1.ListOptions{Limit: 2}
		for pages := 1; ; pages++ {
			list, err := s.client.Resource(pods).List(t.Context(), o)
			testkit.OK(t, err)
			if len(list.Items) > 2 {
				t.Errorf("a page of %d", len(list.Items))
			}
			maps.Copy(got, seen(list.Items))
			if o.Continue = list.GetContinue(); o.Continue == "" {
				break
			}
			if pages > len(want) {
				t.Fatal("there is no end")
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	t.Run("an object is got by its name, and fields select it", func(t *testing.T) {
		key := slices.Sorted(maps.Keys(want))[0]
		namespace, name, _ := strings.Cut(key, "/")
		o, err := s.client.Resource(pods).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		testkit.OK(t, err)
		if o.GetResourceVersion() != want[key] {
			t.Errorf("version %s, want %s", o.GetResourceVersion(), want[key])
		}
		list, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name + ",metadata.namespace!=other"})
		testkit.OK(t, err)
		if got := seen(list.Items); len(got) != 1 || got[key] != want[key] {
			t.Errorf("%v", got)
		}
	})
	t.Run("labels select as the API server does", func(t *testing.T) {
		list, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{LabelSelector: "no-such-label"})
		testkit.OK(t, err)
		if len(list.Items) != 0 {
			t.Errorf("%d objects", len(list.Items))
		}
		all, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{LabelSelector: "!no-such-label"})
		testkit.OK(t, err)
		if len(all.Items) != len(want) {
			t.Errorf("%d objects, want %d", len(all.Items), len(want))
		}
	})
	t.Run("discovery has the resources, at once or one by one", func(t *testing.T) {
		for name, accept := range map[string]bool{"aggregated": false, "legacy": true} {
			d, err := discovery.NewDiscoveryClientForConfig(s.config())
			testkit.OK(t, err)
			d.UseLegacyDiscovery = accept
			_, lists, err := d.ServerGroupsAndResources()
			testkit.OK(t, err)
			found := map[string]bool{}
			for _, list := range lists {
				for _, r := range list.APIResources {
					found[list.GroupVersion+" "+r.Name] = r.Namespaced
				}
			}
			if !found["v1 pods"] || len(found) < 2 {
				t.Errorf("%s: %v", name, found)
			}
		}
	})
	t.Run("a resource without objects is in no namespace, as in Kubernetes", func(t *testing.T) {
		var events []event.Event
		for name, kind := range map[string]string{"mutatingadmissionpolicies": "MutatingAdmissionPolicy", "leases": "Lease"} {
			m, err := event.NewMaker(event.MakerConfig{
				Cluster: "prod", Informer: "all", Type: resource.Type{Group: "example.k8s.io", Version: "v1", Resource: name, Kind: kind},
			})
			testkit.OK(t, err)
			events = append(events, m.Synced("1", event.Listing{}, event.IDSuffix{}, time.Now()))
		}
		_, body := newSite(t, events, serve.Config{Live: true}).request("GET", "/apis/example.k8s.io/v1", nil)
		if !strings.Contains(body, `"mutatingadmissionpolicies","singularName":"mutatingadmissionpolicy","namespaced":false`) ||
			!strings.Contains(body, `"leases","singularName":"lease","namespaced":true`) {
			t.Error(body)
		}
	})
	t.Run("every write is refused", func(t *testing.T) {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			if code, body := s.request(method, "/api/v1/namespaces/shop/pods/web-0", nil); code != 405 || !strings.Contains(body, "nothing can be changed") {
				t.Errorf("%s: %d %s", method, code, body)
			}
		}
	})
	t.Run("nobody is answered without the token", func(t *testing.T) {
		for _, bearer := range []string{"", "Bearer ", "Bearer other", "Basic " + token} {
			if code, body := s.request("GET", "/api/v1/pods", map[string]string{"Authorization": bearer}); code != 401 || strings.Contains(body, "items") {
				t.Errorf("%q: %d %s", bearer, code, body)
			}
		}
	})
	t.Run("what is not there is said as an API server says it", func(t *testing.T) {
		for path, want := range map[string]int{
			"/api/v1/namespaces/shop/pods/nothing": 404, "/api/v1/nothing": 404, "/apis/no.such.group": 404, "/apis/no.such.group/v1": 404, "/nothing": 404,
			"/api/v1/namespaces/shop/pods/web-0/log": 404, "/api/v1/pods?labelSelector=%3D": 400, "/api/v1/pods?limit=x": 400,
			"/api/v1/pods?continue=x": 400, "/api/v1/pods?watch=true&resourceVersion=x": 400,
		} {
			if code, body := s.request("GET", path, nil); code != want || !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	})
	t.Run("tables have the columns that people know", func(t *testing.T) {
		const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
		_, body := s.request("GET", "/api/v1/pods", map[string]string{"Accept": accept})
		var table metav1.Table
		testkit.OK(t, json.Unmarshal([]byte(body), &table))
		var names []string
		for _, c := range table.ColumnDefinitions {
			if c.Priority == 0 {
				names = append(names, c.Name)
			}
		}
		if strings.Join(names, " ") != "Name Ready Status Restarts Age" || len(table.Rows) != len(want) {
			t.Errorf("%v, %d rows", names, len(table.Rows))
		}
	})
	t.Run("metadata alone", func(t *testing.T) {
		_, body := s.request("GET", "/api/v1/pods", map[string]string{"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"})
		var list metav1.PartialObjectMetadataList
		testkit.OK(t, json.Unmarshal([]byte(body), &list))
		if len(list.Items) != len(want) || list.Items[0].Name == "" || strings.Contains(body, `"spec"`) {
			t.Errorf("%s", body)
		}
	})
}

// informed starts an informer, and gives what it has.
func informed(t *testing.T, s *site) func() map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.client, 0)
	informer := factory.ForResource(pods).Informer()
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	if ok := factory.WaitForCacheSync(t.Context().Done())[pods]; !ok {
		t.Fatal("the informer is not in sync")
	}
	return func() map[string]string {
		state := map[string]string{}
		for _, o := range informer.GetStore().List() {
			u, _ := o.(*unstructured.Unstructured)
			state[u.GetNamespace()+"/"+u.GetName()] = u.GetResourceVersion()
		}
		return state
	}
}

func TestReplay(t *testing.T) {
	events := script(t, 5, 30, 20)
	for name, p := range map[string]query.Point{
		"a time": {At: events[len(events)/3].Time}, "a version": {Version: versionOf(&events[len(events)/3])},
	} {
		t.Run("an informer syncs at "+name+" and follows to the last state", func(t *testing.T) {
			s := newSite(t, events, serve.Config{At: p})
			state := informed(t, s)
			want := stateOf(events, time.Time{})
			testkit.Eventually(t, fmt.Sprint("the last state ", want), func() bool { return maps.Equal(state(), want) })
		})
	}
	at := events[len(events)/3].Time
	s := newSite(t, events, serve.Config{At: query.Point{At: at}})
	list, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{})
	testkit.OK(t, err)
	// changes are those that a watch gives from a version, up to the last one of the history.
	changes := func(t *testing.T, version string, n int) (got []string) {
		t.Helper()
		w, err := s.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		testkit.OK(t, err)
		defer w.Stop()
		for e := range w.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("%v", e)
			}
			if got = append(got, string(e.Type)+" "+u.GetName()+" "+u.GetResourceVersion()); len(got) == n {
				break
			}
		}
		return got
	}
	var want []string
	for i := range events {
		e := &events[i]
		if e.Resource == "pods" && !e.AboutInformer() && e.Time.After(at) {
			kind := map[event.Op]watch.EventType{event.Added: watch.Added, event.Updated: watch.Modified, event.Deleted: watch.Deleted}[e.Op]
			want = append(want, string(kind)+" "+e.Name+" "+e.ResourceVersion)
		}
	}
	t.Run("a watch gives every change in its order", func(t *testing.T) {
		if got := changes(t, list.GetResourceVersion(), len(want)); !slices.Equal(got, want) {
			t.Errorf("%d changes %v, want %d %v", len(got), got, len(want), want)
		}
	})
	t.Run("it continues from where a client was", func(t *testing.T) {
		half := len(want) / 2
		version := want[half-1][strings.LastIndexByte(want[half-1], ' ')+1:]
		if got := changes(t, version, len(want)-half); !slices.Equal(got, want[half:]) {
			t.Errorf("%v, want %v", got, want[half:])
		}
	})
	t.Run("it keeps the pace that was asked for", func(t *testing.T) {
		// The first change comes a second after the point at most; at a thousandth of the pace
		// nothing comes.
		slow := newSite(t, events, serve.Config{At: query.Point{At: at}, Speed: 0.0001})
		w, err := slow.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: new(int64(1))})
		testkit.OK(t, err)
		for e := range w.ResultChan() {
			t.Errorf("too early: %v", e)
		}
		fast := newSite(t, events, serve.Config{At: query.Point{At: at}, Speed: 1e6})
		w, err = fast.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		testkit.OK(t, err)
		if e := <-w.ResultChan(); e.Type == watch.Error {
			t.Errorf("%v", e)
		}
		w.Stop()
	})
	t.Run("what retention has removed is gone", func(t *testing.T) {
		old := newSite(t, events, serve.Config{At: query.Point{At: events[len(events)-1].Time}})
		if code, body := old.request("GET", "/api/v1/pods?watch=true&resourceVersion=1&timeoutSeconds=4", nil); code != 200 || !strings.Contains(body, `"MODIFIED"`) {
			t.Errorf("without retention: %d %.200s", code, body)
		}
		removing := newSiteRetained(t, events)
		if code, body := removing.request("GET", "/api/v1/pods?watch=true&resourceVersion=1&timeoutSeconds=4", nil); code != 200 || !strings.Contains(body, `"reason":"Expired"`) {
			t.Errorf("%d %.200s", code, body)
		}
	})
}

// newSiteRetained serves a history that has lost its older half.
func newSiteRetained(t *testing.T, events []event.Event) *site {
	t.Helper()
	dir := t.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	s := &site{t: t, db: db}
	s.append(events)
	last := events[len(events)-1].Time
	testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: last.Sub(events[0].Time) / 2}, last))
	handler, err := serve.New(serve.Config{
		Open:    func() (*query.Questions, func(), error) { return db.Questions, func() {}, nil },
		Cluster: "prod", Access: []serve.Access{serve.Everything(token)}, At: query.Point{At: last},
	})
	testkit.OK(t, err)
	s.server = httptest.NewServer(handler)
	t.Cleanup(s.server.Close)
	return s
}

func versionOf(e *event.Event) (n uint64) {
	_, _ = fmt.Sscan(e.ResourceVersion, &n) // testkit's are numbers
	return n
}

func TestLive(t *testing.T) {
	events := script(t, 7, 20, 20)
	third := len(events) / 3
	s := newSite(t, events[:third], serve.Config{Live: true})
	state := informed(t, s)
	testkit.Eventually(t, "the first state", func() bool {
		return maps.Equal(state(), stateOf(events[:third], time.Time{}))
	})
	for from := third; from < len(events); from += 40 {
		to := min(from+40, len(events))
		s.append(events[from:to])
		want := stateOf(events[:to], time.Time{})
		testkit.Eventually(t, fmt.Sprint("the state after ", to), func() bool { return maps.Equal(state(), want) })
	}
	list, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{})
	testkit.OK(t, err)
	if got, want := seen(list.Items), stateOf(events, time.Time{}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The events of one resource may be stored before older ones of another: a list that was made
// between them has the version of the newer one. The watch of a cache that begins there gives the
// older ones too.
func TestLateEvents(t *testing.T) {
	events := script(t, 9, 20, 20)
	half := len(events) / 2
	next := func(resource string, from int) int {
		return from + slices.IndexFunc(events[from:], func(e event.Event) bool { return e.Resource == resource })
	}
	late := next("pods", half)
	newer := next("deployments", late)
	s := newSite(t, events[:late], serve.Config{Live: true})
	s.append(events[newer : newer+1])
	list, err := s.client.Resource(pods).List(t.Context(), metav1.ListOptions{})
	testkit.OK(t, err)
	if list.GetResourceVersion() != events[newer].ResourceVersion {
		t.Fatalf("the list is of %s", list.GetResourceVersion())
	}
	s.append(events[late : late+1])
	w, err := s.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: new(int64(10)),
		AllowWatchBookmarks: true,
	})
	testkit.OK(t, err)
	defer w.Stop()
	for e := range w.ResultChan() {
		o, isObject := e.Object.(*unstructured.Unstructured)
		if isObject && o.GetName() == events[late].Name {
			if events[late].Op != event.Deleted && o.GetResourceVersion() != events[late].ResourceVersion {
				t.Errorf("it is %s %s", e.Type, o.GetResourceVersion())
			}
			return
		}
	}
	t.Errorf("the watch does not give %s of %s", events[late].Op, events[late].Name)
}

// Custom resources have the names, the scope, the columns and the schema of their definition, as it
// was.
func TestDefinitions(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	object := func(group, resource, kind, namespace, name, version, data string) event.Event {
		return event.Event{
			ID: name, Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", Op: event.Added, Time: at, Informer: "all",
			ObjectAttributes: event.ObjectAttributes{
				Resource: resource, Kind: kind, APIVersion: group + "/v1",
				Namespace: namespace, Name: name, UID: name, ResourceVersion: version,
			}, Routing: event.Routing{Group: group},
			Sequence: "00000000.0000000000000000000" + version, Data: []byte(data),
		}
	}
	s := newSite(t, []event.Event{
		object("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", "", "widgets.example.com", "5", `{
			"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"widgets.example.com"},
			"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget",
			"shortNames":["wd"],"categories":["all"]},"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object",
			"description":"A widget.","properties":{"spec":{"type":"object"}}}},"additionalPrinterColumns":[
			{"name":"Size","type":"integer","jsonPath":".spec.size"},{"name":"Born","type":"date","jsonPath":".metadata.creationTimestamp"},
			{"name":"Color","type":"string","jsonPath":".spec.color","priority":1}]}]}}`),
		object("example.com", "widgets", "Widget", "shop", "first", "6", `{"kind":"Widget","apiVersion":"example.com/v1",
			"metadata":{"name":"first","namespace":"shop","creationTimestamp":"2026-11-22T12:00:00Z"},"spec":{"size":3}}`),
	}, serve.Config{At: query.Point{At: at}})
	_, body := s.request("GET", "/apis/example.com/v1/widgets", map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
	var table metav1.Table
	testkit.OK(t, json.Unmarshal([]byte(body), &table))
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, fmt.Sprintf("%s %s %d", c.Name, c.Type, c.Priority))
	}
	if got := strings.Join(columns, ", "); got != "Name string 0, Size integer 0, Born date 0, Color string 1" {
		t.Errorf("columns %s", got)
	}
	if got := fmt.Sprint(table.Rows[0].Cells); got != "[first 3 120m <nil>]" {
		t.Errorf("cells %s", got)
	}
	_, body = s.request("GET", "/openapi/v3/apis/example.com/v1", nil)
	var d document
	testkit.OK(t, json.Unmarshal([]byte(body), &d))
	widget := d.Components.Schemas["com.example.v1.Widget"]
	if widget.Description != "A widget." || len(widget.Properties) != 4 || d.Components.Schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].Properties == nil {
		t.Errorf("%+v", widget)
	}
	_, body = s.request("GET", "/apis/example.com/v1", nil)
	var list metav1.APIResourceList
	testkit.OK(t, json.Unmarshal([]byte(body), &list))
	if r := list.APIResources[0]; r.SingularName != "widget" || !r.Namespaced || !slices.Equal(r.ShortNames, []string{"wd"}) || !slices.Equal(r.Categories, []string{"all"}) {
		t.Errorf("%+v", r)
	}
}

// document is an OpenAPI v3 document as kubectl explain reads it.
type document struct {
	Paths      map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Description string                     `json:"description"`
			Properties  map[string]json.RawMessage `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

func TestOpenAPI(t *testing.T) {
	events := script(t, 3, 30, 20)
	s := newSite(t, events, serve.Config{At: query.Point{At: events[len(events)-1].Time}})
	_, body := s.request("GET", "/openapi/v3", nil)
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	testkit.OK(t, json.Unmarshal([]byte(body), &index))
	t.Run("a kind of Kubernetes has its schema, and all that it refers to", func(t *testing.T) {
		_, body := s.request("GET", index.Paths["api/v1"].URL, nil)
		var d document
		testkit.OK(t, json.Unmarshal([]byte(body), &d))
		pod := d.Components.Schemas["io.k8s.api.core.v1.Pod"]
		if !strings.Contains(pod.Description, "containers") || d.Paths["/api/v1/namespaces/{namespace}/pods"] == nil {
			t.Errorf("%+v %v", pod, slices.Collect(maps.Keys(d.Paths)))
		}
		for _, part := range strings.Split(body, `"#/components/schemas/`)[1:] {
			if name, _, _ := strings.Cut(part, `"`); d.Components.Schemas[name].Description == "" {
				t.Errorf("no schema %s", name)
			}
		}
	})
	t.Run("a kind without a schema is an error that says so", func(t *testing.T) {
		odd := slices.Clone(events[:0])
		for _, e := range events {
			if e.Resource == "pods" && !e.AboutInformer() {
				e.Group, e.APIVersion, e.Resource, e.Kind = "example.com", "example.com/v1", "widgets", "Widget"
				odd = append(odd, e)
			}
		}
		s := newSite(t, odd, serve.Config{At: query.Point{At: events[len(events)-1].Time}})
		for path, want := range map[string]string{
			"/openapi/v3/apis/example.com/v1": "this history has no schema of example.com/v1",
			"/openapi/v3/nothing":             "want /openapi/v2, /openapi/v3",
		} {
			if code, body := s.request("GET", path, nil); code != 404 || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	})
}
