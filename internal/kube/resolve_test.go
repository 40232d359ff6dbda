package kube_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
)

// catalogs runs a test against both formats of discovery.
func catalogs(t *testing.T, test func(t *testing.T, c *kube.Catalog)) {
	for _, format := range []string{"aggregated", "legacy"} {
		t.Run(format, func(t *testing.T) {
			c, err := newResolver(t, apiServer(t, format)).Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			test(t, c)
		})
	}
}

func texts(types []resource.Type) string {
	var list []string
	for _, t := range types {
		list = append(list, t.Resource+"."+t.APIVersion())
	}
	return strings.Join(list, " ")
}

// Names mean the resources that kubectl takes them for.
func TestKubectlNames(t *testing.T) {
	catalogs(t, func(t *testing.T, c *kube.Catalog) {
		for name, want := range map[string]string{
			"pods":                   "pods.v1",
			"pod":                    "pods.v1",
			"po":                     "pods.v1",
			"Pod":                    "pods.v1",
			"pods.v1":                "pods.v1",
			"deployments":            "deployments.apps/v1",
			"deploy":                 "deployments.apps/v1",
			"Deployment":             "deployments.apps/v1",
			"deployments.apps":       "deployments.apps/v1",
			"deployment.apps":        "deployments.apps/v1",
			"deploy.v1.apps":         "deployments.apps/v1",
			"hpa":                    "horizontalpodautoscalers.autoscaling/v2",
			"hpa.v1.autoscaling":     "horizontalpodautoscalers.autoscaling/v1",
			"events":                 "events.v1",
			"ev":                     "events.v1",
			"events.events.k8s.io":   "events.events.k8s.io/v1",
			"crd":                    "customresourcedefinitions.apiextensions.k8s.io/v1",
			"widgets":                "widgets.example.com/v1",
			"wd":                     "widgets.example.com/v1",
			"widgets.example.com":    "widgets.example.com/v1",
			"widgets.v2.example.com": "widgets.example.com/v2",
			// only in the version that is not preferred
			"gadgets.example.com":           "gadgets.example.com/v2",
			"pods.example.com":              "pods.example.com/v1",
			"*.example.com":                 "gadgets.example.com/v2 pods.example.com/v1 widgets.example.com/v1",
			"*.batch":                       "cronjobs.batch/v1 jobs.batch/v1",
			"*.events.k8s.io":               "events.events.k8s.io/v1",
			"leases":                        "leases.coordination.k8s.io/v1",
			"Secret":                        "secrets.v1",
			"ClusterRoles":                  "clusterroles.rbac.authorization.k8s.io/v1",
			"netpol":                        "networkpolicies.networking.k8s.io/v1",
			"endpointslice":                 "endpointslices.discovery.k8s.io/v1",
			"apiservices":                   "apiservices.apiregistration.k8s.io/v1",
			"storageclasses.storage.k8s.io": "storageclasses.storage.k8s.io/v1",
		} {
			types, err := c.Resolve(kube.Selection{Names: []string{name}})
			if err != nil || texts(types) != want {
				t.Errorf("%s: got %s, %v, want %s", name, texts(types), err, want)
			}
		}
	})
}

// A resolved type has the kind of its objects, and whether they have a namespace.
func TestResolvedTypes(t *testing.T) {
	catalogs(t, func(t *testing.T, c *kube.Catalog) {
		types, err := c.Resolve(kube.Selection{Names: []string{"nodes", "deploy"}})
		want := []resource.Type{
			{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
			{Version: "v1", Resource: "nodes", Kind: "Node"},
		}
		if err != nil || !slices.Equal(types, want) {
			t.Errorf("got %+v, %v", types, err)
		}
	})
}

// The star is everything once.
func TestStarSelection(t *testing.T) {
	catalogs(t, func(t *testing.T, c *kube.Catalog) {
		types, err := c.Resolve(kube.Selection{Names: []string{"*", "pods", "po", "deployments.v1.apps"}})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, typ := range types {
			if seen[typ.String()] {
				t.Errorf("%s is there twice", typ)
			}
			seen[typ.String()] = true
			if strings.Contains(typ.Resource, "/") {
				t.Errorf("%s is a subresource", typ)
			}
		}
		for _, name := range []string{"pods", "events", "secrets", "deployments.apps", "widgets.example.com", "gadgets.example.com", "leases.coordination.k8s.io"} {
			if !seen[name] {
				t.Errorf("%s is missing", name)
			}
		}
		for _, name := range []string{"events.events.k8s.io", "bindings", "componentstatuses", "tokenreviews.authentication.k8s.io", "localsubjectaccessreviews.authorization.k8s.io"} {
			if seen[name] {
				t.Errorf("%s is there, but is events again, or can't be watched", name)
			}
		}
		if len(types) < 40 {
			t.Errorf("only %d types", len(types))
		}
	})
}

func TestExcludingTakesOut(t *testing.T) {
	catalogs(t, func(t *testing.T, c *kube.Catalog) {
		for _, test := range []struct {
			name    string
			exclude []string
			gone    []string
		}{
			{"a short name", []string{"po"}, []string{"pods"}},
			{"another version", []string{"widgets.v2.example.com"}, []string{"widgets.example.com"}},
			{"a group", []string{"*.example.com"}, []string{"widgets.example.com", "gadgets.example.com", "pods.example.com"}},
			{"either name of events", []string{"events.events.k8s.io"}, []string{"events"}},
			{"what is not served", []string{"trains.railway.example"}, nil},
		} {
			all, err := c.Resolve(kube.Selection{Names: []string{"*"}})
			if err != nil {
				t.Fatal(err)
			}
			left, err := c.Resolve(kube.Selection{Names: []string{"*"}, Exclude: test.exclude})
			if err != nil {
				t.Fatal(test.name, err)
			}
			var gone []string
			for _, typ := range all {
				if !slices.Contains(left, typ) {
					gone = append(gone, typ.String())
				}
			}
			slices.Sort(gone)
			slices.Sort(test.gone)
			if !slices.Equal(gone, test.gone) {
				t.Errorf("%s: took out %v, want %v", test.name, gone, test.gone)
			}
		}
		both, err := c.Resolve(kube.Selection{Names: []string{"*", "events.events.k8s.io"}, Exclude: []string{"events"}})
		if err != nil || strings.Contains(texts(both), "events.") {
			t.Errorf("excluding events left one of its names: %v", err)
		}
	})
}

// Namespaced leaves out resources without a namespace.
func TestNamespacedTypes(t *testing.T) {
	catalogs(t, func(t *testing.T, c *kube.Catalog) {
		types, err := c.Resolve(kube.Selection{Names: []string{"*"}, Namespaced: true})
		if err != nil || len(types) == 0 {
			t.Fatal(err)
		}
		for _, typ := range types {
			if !typ.Namespaced {
				t.Errorf("%s is in no namespace", typ)
			}
		}
		if _, err = c.Resolve(kube.Selection{Names: []string{"nodes"}, Namespaced: true}); err == nil || !strings.Contains(err.Error(), "nodes is in no namespace") {
			t.Errorf("nodes by name: %v", err)
		}
	})
}

// Unknown names are reported with the nearest ones.
func TestUnknownNames(t *testing.T) {
	server := http.NewServeMux()
	api, apis := read(t, "testdata/aggregated_api.json"), read(t, "testdata/aggregated_apis.json")
	for path, body := range map[string]string{"/api": api, "/apis": apis} {
		server.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", aggregated)
			_, _ = w.Write([]byte(body))
		})
	}
	c, err := newResolver(t, server).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	types, err := c.Resolve(kube.Selection{
		Names:   []string{"pdo", "deploymets.apps", "secrets", "zzzzzzzzzzzz", "componentstatuses", "*.nowhere.example"},
		Exclude: []string{"evnets"},
	})
	want := `pdo: the API server has no such resource: did you mean "pod"?
deploymets.apps: the API server has no such resource: did you mean "deployments.apps"?
zzzzzzzzzzzz: the API server has no such resource
componentstatuses can't be watched: the API server allows only get, list
*.nowhere.example: the API server has no such resource
exclude evnets: the API server has no such resource: did you mean "events"?`
	if err == nil || err.Error() != want || !errors.Is(err, kube.ErrUnknown) || errors.Is(err, kube.ErrUnavailable) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if texts(types) != "secrets.v1" {
		t.Errorf("what was found is lost: %s", texts(types))
	}
}

// An API group that is unavailable hides only itself.
func TestUnavailableGroup(t *testing.T) {
	catalogs(t, func(t *testing.T, c *kube.Catalog) {
		if _, down := c.Unavailable()[schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}]; !down || len(c.Unavailable()) != 1 {
			t.Errorf("unavailable: %v", c.Unavailable())
		}
		_, err := c.Resolve(kube.Selection{Names: []string{"nodes.metrics.k8s.io"}})
		if !errors.Is(err, kube.ErrUnavailable) || errors.Is(err, kube.ErrUnknown) {
			t.Errorf("a resource of it: %v", err)
		}
		if _, err = c.Resolve(kube.Selection{Names: []string{"trains.railway.example"}}); !errors.Is(err, kube.ErrUnknown) {
			t.Errorf("a resource of another group: %v", err)
		}
		if types, err := c.Resolve(kube.Selection{Names: []string{"*"}}); err != nil || len(types) < 40 {
			t.Errorf("everything: %d types, %v", len(types), err)
		}
	})
}
