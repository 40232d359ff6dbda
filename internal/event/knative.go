package event

import "github.com/kubebridge/bridge/internal/resource"

// Types are the vocabulary of types and subjects.
type Types string

// The vocabularies.
const (
	TypesBridge  Types = "bridge"  // our own; the default
	TypesKnative Types = "knative" // that of Knative's ApiServerSource
)

// knativeOps are Knative's words. It has none for a Synced, nor for news about an informer: those
// keep ours.
var knativeOps = map[Op]string{Added: "add", Updated: "update", Deleted: "delete"}

// typeNames are the types of events about objects.
func typeNames(cfg *MakerConfig) map[Op]string {
	names := map[Op]string{}
	for _, op := range []Op{Added, Updated, Deleted, Synced} {
		names[op] = "dev.kubebridge.resource." + string(op)
	}
	if cfg.Types != TypesKnative {
		return names
	}
	mode := "resource."
	if cfg.Payload == PayloadReference {
		mode = "ref."
	}
	for op, word := range knativeOps {
		names[op] = "dev.knative.apiserver." + mode + word
	}
	return names
}

// TypeOf is the type of an event about an object.
func TypeOf(op Op, types Types, payload Payload) string {
	return typeNames(&MakerConfig{Types: types, Payload: payload})[op]
}

// knativeSubject is the object's path in Knative's form, which knows neither /api nor
// cluster-scoped objects.
func knativeSubject(t resource.Type, namespace, name string) string {
	return "/apis/" + t.APIVersion() + "/namespaces/" + namespace + "/" + t.Resource + "/" + name
}

// objectReference is what Knative sends in the place of an object.
type objectReference struct {
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// asKnative changes what Knative names otherwise.
func (m *Maker) asKnative(e *Event) {
	e.Subject = knativeSubject(m.cfg.Type, e.Namespace, e.Name)
	if m.cfg.Payload == PayloadReference {
		e.Data = mustJSON(objectReference{e.Kind, e.Namespace, e.Name, e.APIVersion})
	}
}
