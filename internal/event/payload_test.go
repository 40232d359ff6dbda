package event_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// A patch can't be made smaller and still be a patch: what is too large says only which object it
// is about.
func TestOversizePatch(t *testing.T) {
	e := event.Event{Data: []byte(`{"metadata":{"managedFields":[],"resourceVersion":"8"}}`), DataType: event.MergePatchContentType}
	if trimmed := event.Trimmed(&e); trimmed != nil {
		t.Errorf("trimmed to %s", trimmed.Data)
	}
	if small := event.Reference(&e); small.Data != nil || small.DataType != "" {
		t.Errorf("%q %s", small.DataType, small.Data)
	}
}

func TestPayloadForms(t *testing.T) {
	const (
		before = `{"kind":"Deployment","metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":1}}`
		after  = `{"kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2}}`
		nulled = `{"kind":"Deployment","metadata":{"name":"web"},"spec":null}`
		merge  = "application/merge-patch+json"
	)
	for _, tt := range []struct {
		name       string
		payload    event.Payload
		op         event.Op
		now, old   string
		data, kind string
	}{
		{"object", event.PayloadObject, event.Updated, after, before, after, ""},
		{"reference", event.PayloadReference, event.Updated, after, before, "", ""},
		{"metadata", event.PayloadMetadata, event.Updated, after, before, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"web"}}`, ""},
		{
			"change of an update", event.PayloadChange, event.Updated, after, before,
			`{"object":` + after + `,"old":` + before + `,"patch":[{"op":"remove","path":"/metadata/labels"},{"op":"replace","path":"/spec/replicas","value":2}]}`, "",
		},
		{"change of an add", event.PayloadChange, event.Added, after, "", `{"object":` + after + `}`, ""},
		{"change of a delete", event.PayloadChange, event.Deleted, after, "", `{"object":` + after + `}`, ""},
		{"patch of an update", event.PayloadPatch, event.Updated, after, before, `{"metadata":{"labels":null},"spec":{"replicas":2}}`, merge},
		{"patch of an update that is none", event.PayloadPatch, event.Updated, after, after, `{}`, merge},
		{"patch that can't be", event.PayloadPatch, event.Updated, nulled, before, nulled, ""},
		{"patch of an add", event.PayloadPatch, event.Added, after, "", after, ""},
		{"patch of a delete", event.PayloadPatch, event.Deleted, after, "", after, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := event.Change{Op: tt.op, Key: "shop/web", Object: &resource.Object{Raw: []byte(tt.now)}, UID: "u", Version: "8"}
			if tt.old != "" {
				c.Old = &resource.Object{Raw: []byte(tt.old)}
			}
			e := newMaker(t, event.MakerConfig{Type: deployments, Payload: tt.payload}).Object(&c)
			if string(e.Data) != tt.data || e.DataType != tt.kind {
				t.Errorf("%q %s\nwant %q %s", e.DataType, e.Data, tt.kind, tt.data)
			}
			_, attributes := attributes(&e)
			if want := map[bool]string{true: tt.kind, false: "application/json"}[tt.kind != ""]; tt.data != "" && attributes["datacontenttype"] != want {
				t.Errorf("datacontenttype %q", attributes["datacontenttype"])
			}
		})
	}
	t.Run("of an object that is not known", func(t *testing.T) {
		for _, payload := range event.Payloads {
			e := newMaker(t, event.MakerConfig{Type: deployments, Payload: payload}).Object(&event.Change{Op: event.Deleted, Key: "shop/web"})
			if e.Data != nil && payload != event.PayloadDebezium { // which names it
				t.Errorf("%s: %s", payload, e.Data)
			}
		}
	})
}
