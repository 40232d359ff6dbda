package kube_test

import (
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/kube"
)

// A pinned name means later what it means now.
func TestPinnedNames(t *testing.T) {
	catalog, err := newResolver(t, apiServer(t, "aggregated")).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"po", "Pod", "deploy", "deployments.v1.apps", "widgets", "wd", "widgets.v2.example.com", "widgets.example.com", "pods.v1", "*", "*.apps", "nonsense"}
	want := []string{
		"pods", "pods", "deployments.apps", "deployments.v1.apps", "widgets.example.com", "widgets.example.com", "widgets.v2.example.com",
		"widgets.example.com", "pods.v1", "*", "*.apps", "nonsense",
	}
	if got := catalog.Pin(names); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	before, err := catalog.Resolve(kube.Selection{Names: names[:9]})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := catalog.Resolve(kube.Selection{Names: catalog.Pin(names[:9])}); err != nil || !slices.Equal(before, after) {
		t.Errorf("they select other resources: %v (%v), before %v", after, err, before)
	}
}
