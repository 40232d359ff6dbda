package event_test

import (
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// With the three of a frame (internal/reflector) and the one of a message (internal/sinks/nats), an
// object's road costs five allocations.
func TestEventAllocations(t *testing.T) {
	typ := resource.Type{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	m, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	raw := []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd","resourceVersion":"1000000001"}}`)
	obj, err := resource.Parse(raw, resource.ParseOptions{Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	c := &event.Change{Op: event.Updated, Key: "shop/web", Object: obj, UID: obj.UID, Version: obj.Version, Before: "1000000000", Observed: time.Now()}
	var e event.Event
	if got := testing.AllocsPerRun(1000, func() { e = m.Object(c) }); got > 1 {
		t.Errorf("%v allocations", got)
	}
	if e.Subject != typ.ObjectPath("shop/web") {
		t.Errorf("subject %s", e.Subject)
	}
}
