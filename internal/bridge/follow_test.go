package bridge_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var widgetsV2 = resource.Type{Group: "example.com", Version: "v2", Resource: "widgets", Kind: "Widget", Namespaced: true}

// catalog is what an API server says that it serves.
type catalog struct {
	mu      sync.Mutex
	types   []resource.Type // guarded by mu, as all below
	unknown bool            // part of the API does not answer
	err     error
}

func (c *catalog) serve(types ...resource.Type) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.types = types
}

func (c *catalog) set(change func(*catalog)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// byVersion sends requests for each version of widgets to its server, and all others to pods.
type byVersion struct{ pods, v1, v2 *testkit.Server }

func (p byVersion) RoundTrip(req *http.Request) (*http.Response, error) {
	to := p.pods
	switch {
	case strings.HasPrefix(req.URL.Path, "/apis/example.com/v1/"):
		to = p.v1
	case strings.HasPrefix(req.URL.Path, "/apis/example.com/v2/"):
		to = p.v2
	}
	return to.HTTP().Transport.RoundTrip(req)
}

// follow is a rig whose API server begins with pods only, and can serve widgets.
type follow struct {
	*rig
	sink    *testkit.Broker
	catalog *catalog
	v1, v2  *testkit.Server
}

func newFollow(t *testing.T, change ...func(*informer.Config)) *follow {
	f := &follow{sink: calmBroker(t, "sink"), catalog: &catalog{}}
	f.rig = newRig(t, f.sink)
	f.v1, f.v2 = testkit.NewServer(t, widgets), testkit.NewServer(t, widgetsV2)
	f.cfg.Client.HTTP = &http.Client{Transport: byVersion{f.Server, f.v1, f.v2}}
	f.cfg.Registerer = prometheus.NewRegistry()
	f.cfg.Units[0].Reflector.Backoff.Max = time.Second
	for _, ch := range change {
		ch(&f.cfg.Units[0])
	}
	like := f.cfg.Units[0]
	f.cfg.Planner = func(context.Context) (bridge.Plan, error) {
		c := f.catalog
		c.mu.Lock()
		defer c.mu.Unlock()
		unknown := c.unknown
		return bridge.Plan{Units: units(like, c.types), Unknown: func(resource.Type) bool { return unknown }}, c.err
	}
	return f
}

// units are units for types.
func units(like informer.Config, types []resource.Type) (list []informer.Config) {
	for _, like.Type = range types {
		list = append(list, like)
	}
	return list
}

// begin starts with a server that serves these types.
func (f *follow) begin(types ...resource.Type) {
	f.catalog.serve(types...)
	f.cfg.Units = units(f.cfg.Units[0], types)
	f.start()
}

// vanish ends a resource: its watches are cut, and requests answered with 404.
func vanish(s *testkit.Server) {
	s.Faults.Refuse(testkit.Any, -1, http.StatusNotFound, metav1.StatusReasonNotFound)
	s.Streams.Cut()
}

func (f *follow) phases() map[string]string {
	phases := map[string]string{}
	for _, s := range f.Status().Informers {
		phases[s.Resource] = s.Phase
	}
	return phases
}

func (f *follow) finish() {
	f.t.Helper()
	_, err := f.end()
	testkit.OK(f.t, err)
}

// A resource that appears is watched.
func TestNewResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollow(t)
		f.begin(pods)
		expect(t, f.sink, "synced")
		f.v1.Create("shop/w", nil)
		f.catalog.serve(pods, widgets)
		time.Sleep(31 * time.Second)
		expect(t, f.sink, "added w", "synced")
		f.v1.Update("shop/w", nil)
		f.Create("shop/p", nil)
		f.settle()
		expect(t, f.sink, "updated w", "added p")
		f.finish()
	})
}

// All objects of a resource that appears are sent as changes.
func TestNewResourceObjects(t *testing.T) {
	for unknown, want := range map[bool][]string{false: {"added w", "synced"}, true: nil} {
		synctest.Test(t, func(t *testing.T) {
			f := newFollow(t, func(u *informer.Config) { u.Snapshot = informer.SnapshotNever })
			f.cfg.Unknown = func(resource.Type) bool { return unknown } // then it may have been there before
			f.v1.Create("shop/w", nil)
			f.begin(pods)
			f.catalog.serve(pods, widgets)
			time.Sleep(31 * time.Second)
			expect(t, f.sink, want...)
			f.finish()
		})
	}
}

// A resource that disappears stops, and comes back.
func TestRemovedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollow(t)
		f.v1.Create("shop/a", nil)
		f.v1.Create("shop/b", nil)
		f.begin(pods, widgets)
		expect(t, f.sink, "synced", "synced", "added a", "added b")
		f.v1.Delete("shop/a") // as the API server does before it gives up a CRD
		f.settle()
		vanish(f.v1)
		f.catalog.serve(pods)
		time.Sleep(10 * time.Second) // soon, by the 404s
		expect(t, f.sink, "deleted a")
		if phases := f.phases(); phases["widgets.example.com"] != "gone" || phases["pods"] != "watching" {
			t.Errorf("phases: %v", phases)
		}
		if reasons := f.Ready(); len(reasons) > 0 {
			t.Errorf("a resource that nobody named is missed: %v", reasons)
		}
		requests := len(f.v1.Requests(testkit.Any))
		time.Sleep(10 * time.Minute)
		if n := len(f.v1.Requests(testkit.Any)) - requests; n > 0 {
			t.Errorf("%d requests for a resource that is gone", n)
		}

		f.v1.Faults.Heal()
		f.v1.Delete("shop/b")
		f.v1.Create("shop/c", nil)
		f.v1.Expire()
		f.catalog.serve(pods, widgets)
		time.Sleep(31 * time.Second)
		expect(t, f.sink, "gap inferred", "deleted b inferred", "added c inferred", "synced")
		if phases := f.phases(); phases["widgets.example.com"] != "watching" || len(f.Status().Informers) != 2 {
			t.Errorf("phases: %v", phases)
		}
		f.finish()
	})
}

// A resource that the configuration names is reported as missing when it disappears.
func TestRemovedNamedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollow(t, func(u *informer.Config) { u.Named = true })
		f.begin(pods, widgets)
		vanish(f.v1)
		f.catalog.serve(pods)
		time.Sleep(10 * time.Second)
		reasons := f.Ready()
		if len(reasons) != 1 || reasons[0].Component != "informer all/widgets.example.com" || !strings.Contains(reasons[0].Message, "does not serve") {
			t.Errorf("Ready: %v", reasons)
		}
		f.finish()
	})
}

// A resource is gone only when discovery and its requests both report so.
func TestRemovalInDoubt(t *testing.T) {
	for name, happens := range map[string]func(f *follow){
		"only what the server says of itself": func(f *follow) { f.catalog.serve(pods) },
		"only a request":                      func(f *follow) { vanish(f.v1) },
		"its API group does not answer": func(f *follow) {
			vanish(f.v1)
			f.catalog.set(func(c *catalog) { c.types, c.unknown = c.types[:1], true })
		},
		"the server does not say what it serves": func(f *follow) {
			vanish(f.v1)
			f.catalog.set(func(c *catalog) { c.types, c.err = nil, errors.New("down") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollow(t)
				f.begin(pods, widgets)
				happens(f)
				time.Sleep(5 * time.Minute)
				if phase := f.phases()["widgets.example.com"]; phase == "gone" {
					t.Error("it is gone")
				}
				f.finish()
			})
		})
	}
}

// A resource moves to another version of the API without a list.
func TestVersionMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollow(t)
		f.v1.Create("shop/a", nil)
		f.v2.Create("shop/a", nil) // one storage, two versions
		f.begin(pods, widgets)
		expect(t, f.sink, "synced", "synced", "added a")
		f.catalog.serve(pods, widgetsV2)
		time.Sleep(40 * time.Second)
		expect(t, f.sink)
		f.v1.Update("shop/a", nil)
		f.v2.Update("shop/a", nil)
		f.v2.Create("shop/b", nil)
		f.settle()
		expect(t, f.sink, "updated a", "added b")
		for _, r := range f.sink.Records() {
			if r.Name == "b" && r.APIVersion != "example.com/v2" {
				t.Errorf("apiversion %s", r.APIVersion)
			}
		}
		f.finish()
	})
}

// A sink that is unavailable does not make a resource stop that could continue: it moves when its
// backlog was sent.
func TestVersionMoveInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollow(t)
		f.begin(pods, widgets)
		expect(t, f.sink, "synced", "synced")
		f.sink.Set(testkit.Unreachable)
		f.v1.Create("shop/a", nil)
		f.v2.Create("shop/a", nil)
		time.Sleep(30 * time.Second) // it lies on disk
		f.catalog.serve(pods, widgetsV2)
		time.Sleep(5 * time.Minute)
		f.v1.Update("shop/a", nil)
		f.v2.Update("shop/a", nil)
		f.settle()
		if phase := f.phases()["widgets.example.com"]; phase != "watching" {
			t.Errorf("while the sink is unavailable it is %s: versions may be lost", phase)
		}
		f.sink.Set(testkit.Healthy)
		time.Sleep(5 * time.Minute)
		expect(t, f.sink, "added a", "updated a")
		f.v2.Create("shop/b", nil)
		f.settle()
		expect(t, f.sink, "added b")
		f.finish()
	})
}

// A changed definition makes the bridge ask again what is served.
func TestDiscoveryOnCRDChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		definitions := resource.Type{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
		f := newFollow(t)
		crds := testkit.NewServer(t, definitions)
		f.cfg.Client.HTTP = &http.Client{Transport: byPrefix{"/apis/apiextensions.k8s.io/", crds, f.cfg.Client.HTTP.Transport}}
		f.begin(pods, definitions)
		time.Sleep(32 * time.Second)
		expect(t, f.sink, "synced", "synced")
		f.v1.Create("shop/w", nil)
		f.catalog.serve(pods, definitions, widgets)
		crds.Create("widgets.example.com", nil)
		f.settle()
		expect(t, f.sink, "added widgets.example.com", "added w", "synced")
		f.finish()
	})
}

// byPrefix sends requests whose path begins so to one server and all others elsewhere.
type byPrefix struct {
	prefix string
	to     *testkit.Server
	others http.RoundTripper
}

func (p byPrefix) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, p.prefix) {
		return p.to.HTTP().Transport.RoundTrip(req)
	}
	return p.others.RoundTrip(req)
}
