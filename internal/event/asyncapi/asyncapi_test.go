package asyncapi_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// compiler has the schemas of all forms.
func compiler(t *testing.T) (*jsonschema.Compiler, map[string]any) {
	t.Helper()
	text, err := json.Marshal(asyncapi.Forms())
	testkit.OK(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	testkit.OK(t, err)
	c := jsonschema.NewCompiler()
	testkit.OK(t, c.AddResource("forms.json", doc))
	return c, doc.(map[string]any)["definitions"].(map[string]any)
}

// TestForms holds what events have as data against the schema of the form, also member by member,
// so that a member that is added later is described.
func TestForms(t *testing.T) {
	c, definitions := compiler(t)
	pods := resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	raw := func(version string) *resource.Object {
		return &resource.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"n":"` + version + `"}}}`)}
	}
	maker := func(payload event.Payload, types event.Types) *event.Maker {
		m, err := event.NewMaker(event.MakerConfig{
			Cluster: "c", Informer: "all", Type: pods, Payload: payload, Types: types, Omits: []string{"filter"},
		})
		testkit.OK(t, err)
		return m
	}
	update := &event.Change{
		Op: event.Updated, Key: "n/a", UID: "u", Version: "8", Before: "7", Object: raw("8"), Old: raw("7"), Origin: event.Origin{
			Time:       at,
			By:         resource.FieldManager{Manager: "m", Operation: "Update", Subresource: "status"},
			TimeSource: "observed",
		}, Inferred: true,
		Cause: "created",
	}
	about := maker(event.PayloadObject, event.TypesBridge)
	for _, tt := range []struct {
		form  string
		event event.Event
	}{
		{"object", about.Object(update)},
		{"metadata", maker(event.PayloadMetadata, "").Object(update)},
		{"reference", maker(event.PayloadReference, event.TypesKnative).Object(update)},
		{"change", maker(event.PayloadChange, "").Object(update)},
		{"mergepatch", maker(event.PayloadPatch, "").Object(update)},
		{"debezium", maker(event.PayloadDebezium, "").Object(update)},
		{"attributed", event.Event{Data: []byte(`{"change":"u/8","op":"updated","user":"ann","groups":["devs"],"impersonator":"bob",
			"verb":"patch","subresource":"status","userAgent":"kubectl","auditID":"a","grade":"exact"}`)}},
		{"attributed", event.Event{Data: []byte(`{"change":"u/8","op":"updated","unknown":"two requests may have made it"}`)}},
		{"informer-synced", about.Synced("9", event.Listing{Items: 1, Unreadable: 1, DeletesUnknown: true}, event.IDSuffix{}, at)},
		{"informer-progress", about.Progress("9", event.Unwatched{}, event.IDSuffix{}, at)},
		{"informer-gap", about.Gap(&resource.Relist{Reason: resource.ReasonExpired, From: "7", To: "9"}, time.Time{}, event.IDSuffix{}, at)},
		{"informer-gap", about.Dropped(event.LossReport{Events: 2, From: "7", To: "9"}, event.IDSuffix{}, 1, at)},
		{"informer-quarantined", about.Quarantined(&resource.Unreadable{
			Key: "n/a", Reason: "too deep", Message: "m", Size: 3, Partial: true, Raw: []byte("raw"),
			Digest: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		}, event.IDSuffix{}, at)},
	} {
		t.Run(tt.form, func(t *testing.T) {
			s, err := c.Compile("forms.json#/definitions/" + tt.form)
			testkit.OK(t, err)
			data, err := jsonschema.UnmarshalJSON(bytes.NewReader(tt.event.Data))
			testkit.OK(t, err)
			testkit.OK(t, s.Validate(data))
			if tt.form != "mergepatch" { // whose members are those of the object
				described(t, tt.form, definitions[tt.form].(map[string]any), data.(map[string]any))
				if s.Validate(map[string]any{}) == nil {
					t.Error("an empty object passes")
				}
			}
			if s.Validate([]any{}) == nil {
				t.Error("a list passes")
			}
		})
	}
	if len(definitions) != 11 {
		t.Errorf("%d forms, and not all are tested", len(definitions))
	}
}

// described fails t on a member that the schema has no word of.
func described(t *testing.T, form string, of map[string]any, data map[string]any) {
	t.Helper()
	for name, value := range data {
		inner, ok := of["properties"].(map[string]any)[name].(map[string]any)
		if !ok {
			t.Errorf("%s: member %s is not described", form, name)
			continue
		}
		if object, isObject := value.(map[string]any); isObject && inner["properties"] != nil {
			described(t, form+"."+name, inner, object)
		}
	}
}

func TestAddresses(t *testing.T) {
	doc := asyncapi.Document("prod.eu_1", []asyncapi.Sink{
		{Name: "n", Protocol: "nats", Address: "k8s.{cluster}.{attributes.team}.{name}"},
		{Name: "k", Protocol: "kafka", Address: "k8s.{cluster}"},
		{Name: "out"},
	})
	channels := doc["channels"].(map[string]any)
	for name, want := range map[string]any{"n": "k8s.prod_eu%5F1.{attributes_team}.{name}", "k": "k8s.prod.eu_5F1", "out": nil} {
		if got := channels[name].(map[string]any)["address"]; got != want {
			t.Errorf("%s: address %v, want %v", name, got, want)
		}
	}
	if parameters := channels["n"].(map[string]any)["parameters"].(map[string]any); len(parameters) != 2 || parameters["attributes_team"] == nil {
		t.Errorf("parameters %v", parameters)
	}
}

// TestFlatRecords holds flat records against the schemas of a sink with these: of an object, of an
// informer, and a dead letter. A record that lacks a column, or has one of another type, fails.
func TestFlatRecords(t *testing.T) {
	doc := asyncapi.Document("prod", []asyncapi.Sink{{
		Name: "rows", Protocol: "kafka", Address: "rows", DeadLetters: "dead", Flat: true, Oversize: true,
		ContentType: "content-type",
		Streams: []asyncapi.Stream{{
			Informer: "all", Payload: event.PayloadObject, Ops: []event.Op{event.Deleted}, Owners: true,
		}},
	}})
	text, err := json.Marshal(doc)
	testkit.OK(t, err)
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	testkit.OK(t, err)
	c := jsonschema.NewCompiler()
	testkit.OK(t, c.AddResource("doc.json", decoded))
	maker, err := event.NewMaker(event.MakerConfig{
		Cluster: "prod", Informer: "all", Type: resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
	})
	testkit.OK(t, err)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	deleted := maker.Object(&event.Change{
		Op: event.Deleted, Key: "n/a", UID: "u", Version: "8", Inferred: true, Origin: event.Origin{Time: at},
		Owners: []resource.Owner{{Kind: "Job", Name: "j"}},
	})
	letter := deleted
	letter.Extensions = append(letter.Extensions, event.Attribute{Name: "deadletterreason", Value: "no"},
		event.Attribute{Name: "deadletterattempts", Value: "3"}, event.Attribute{Name: "truncated", Value: "true"})
	for message, e := range map[string]event.Event{
		"rows.all.object.deleted":    deleted,
		"rows.all.informer.progress": maker.Progress("9", event.Unwatched{}, event.IDSuffix{}, at),
		"rows.deadletter":            letter,
	} {
		t.Run(message, func(t *testing.T) {
			s, err := c.Compile("doc.json#/components/messages/" + message + "/payload")
			testkit.OK(t, err)
			read := func() map[string]any {
				row, err := jsonschema.UnmarshalJSON(bytes.NewReader(event.AppendFlat(nil, &e)))
				testkit.OK(t, err)
				return row.(map[string]any)
			}
			testkit.OK(t, s.Validate(read()))
			for name, value := range read() {
				row := read()
				row[name] = []any{value}
				if s.Validate(row) == nil {
					t.Errorf("%s may be a list: it is not described", name)
				}
				delete(row, name)
				if required := slices.Contains(event.FlatColumns(), name); (s.Validate(row) != nil) != required {
					t.Errorf("a record without %s: required is %v", name, required)
				}
			}
		})
	}
	headers := doc["components"].(map[string]any)["messages"].(map[string]any)["rows.deadletter"].(map[string]any)["headers"]
	pattern := headers.(map[string]any)["properties"].(map[string]any)["content-type"].(map[string]any)["pattern"].(string)
	if !regexp.MustCompile(pattern).MatchString(event.FlatContentType + "; charset=UTF-8") {
		t.Errorf("content-type is %s", pattern)
	}
}
