package event_test

import (
	"bytes"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

func TestDecode(t *testing.T) {
	want := full()
	want.Time = want.Time.UTC()
	want.Cluster, want.Observed = "", time.Time{} // no attribute has them
	want.Extensions = []event.Attribute{{Name: "another", Value: "1"}}
	want.TraceParent, want.DataType = "00-ab", event.ContentType

	t.Run("every attribute is read back", func(t *testing.T) {
		var got event.Event
		full().Each(func(name, value string) {
			if err := got.Set(name, value); err != nil {
				t.Fatal(err)
			}
		})
		got.Data = want.Data
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("event\n%+v\nwant\n%+v", &got, want)
		}
	})
	t.Run("none of an event's texts is taken for somebody else's attribute", func(t *testing.T) {
		var want, got event.Event
		fields := reflect.ValueOf(&want).Elem()
		for i := range fields.NumField() {
			if f := fields.Field(i); f.Kind() == reflect.String {
				f.SetString("of " + fields.Type().Field(i).Name)
			}
		}
		want.Type, want.Op = "dev.kubebridge.resource.updated", event.Updated
		want.APIVersion, want.Group, want.Version = "apps/v1", "apps", "v1"
		want.Cluster, want.CompactionKey, want.Run = "", "", "" // no attribute has them
		want.Each(func(name, value string) {
			if err := got.Set(name, value); err != nil {
				t.Fatal(err)
			}
		})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("event\n%+v\nwant\n%+v", got, want)
		}
	})
	t.Run("so is a structured event, with its data byte for byte", func(t *testing.T) {
		got, err := event.ParseStructured(event.AppendStructured(nil, full()))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("event\n%+v\nwant\n%+v", &got, want)
		}
	})
	t.Run("the type gives the op, also in Knative's words", func(t *testing.T) {
		for typ, op := range map[string]event.Op{
			"dev.kubebridge.resource.deleted":      event.Deleted,
			"dev.kubebridge.informer.gap":          event.Gap,
			"dev.knative.apiserver.ref.update":     event.Updated,
			"dev.knative.apiserver.resource.other": "",
			"com.example.added":                    "",
		} {
			var e event.Event
			if err := e.Set("type", typ); err != nil || e.Op != op {
				t.Errorf("%s: op %q and %v, want %q", typ, e.Op, err, op)
			}
		}
	})
	t.Run("data may be in base64, attributes numbers, booleans or null", func(t *testing.T) {
		got, err := event.ParseStructured([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","initial":true,"replicas":3,"manager":null,"data_base64":"eyJhIjoxfQ=="}`))
		if err != nil || string(got.Data) != `{"a":1}` || !got.Initial || len(got.Extensions) != 1 || got.Extensions[0].Value != "3" {
			t.Errorf("event %+v, %v", got, err)
		}
	})
	for name, document := range map[string]string{
		"an array is no event":                  `[1]`,
		"an object without an id is no event":   `{"specversion":"1.0","source":"s","type":"t"}`,
		"nor is one without a version":          `{"id":"1","source":"s","type":"t"}`,
		"another version of CloudEvents is not": `{"specversion":"0.3","id":"1","source":"s","type":"t"}`,
		"nor is a time that is none":            `{"specversion":"1.0","id":"1","source":"s","type":"t","time":"now"}`,
		"nor is a time that is none in UTC":     `{"specversion":"1.0","id":"1","source":"s","type":"t","time":"9999-12-31T23:59:59-01:00"}`,
		"nor is a name that brings another":     `{"specversion":"1.0","id":"1","source":"s","type":"t","a\":\"x\",\"id":"2"}`,
		"nor is data in base64 that is no JSON": `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"MSwiaWQiOiIyIg=="}`,
		"nor is what ends too soon":             `{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":`,
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := event.ParseStructured([]byte(document)); err == nil {
				t.Errorf("it was read as %+v", e)
			}
		})
	}
}

// requireSameAsSDK compares what is read without the SDK with what the SDK reads.
func requireSameAsSDK(t *testing.T, m *event.Message) {
	t.Helper()
	plain, ok := m.Plain()
	if !ok {
		return // the SDK decides
	}
	e, err := m.Event()
	if err != nil {
		t.Fatalf("%+v is no event for the SDK: %v", plain, err)
	}
	_, got := attributes(&plain)
	if _, want := attributes(&e); !maps.Equal(got, want) || !bytes.Equal(plain.Data, e.Data) {
		t.Errorf("read\n%q and %q, the SDK\n%q and %q", got, plain.Data, want, e.Data)
	}
}

// What the bridge writes is read without the SDK, and in no other way than by it.
func TestPlain(t *testing.T) {
	patch := full()
	patch.Data, patch.DataType = []byte(`{"a":null}`), event.MergePatchContentType
	for name, e := range map[string]*event.Event{"an object": full(), "a patch": patch} {
		for form, m := range writtenForms(e) {
			t.Run(name+", "+form, func(t *testing.T) {
				if _, ok := m.Plain(); !ok {
					t.Error("only the SDK reads it")
				}
				requireSameAsSDK(t, m)
			})
		}
	}
	for _, c := range specifiedCases() {
		t.Run(c.name, func(t *testing.T) { requireSameAsSDK(t, c.message) })
	}
}

// FuzzMessage has any value in a header of each binding.
func FuzzMessage(f *testing.F) {
	for name, value := range someEvent {
		f.Add(name, value)
	}
	for _, c := range [][2]string{
		{"id", " 1"},
		{"id", ""},
		{"type", "t\u00a0"},
		{"source", "/a b"},
		{"source", "//a:b"},
		{"source", "/%2f"},
		{"source", "/a#"},
		{"datacontenttype", "text/plain"},
		{"dataschema", "a"},
		{"data", "1"},
		{"time", ""},
		{"specversion", "0.3"},
		{"Initial", "true"},
		{"notbefore", "0001-01-01T00:00:00Z"},
		{"a", "\xff"},
		{"a", "%ff"},
		{"a", `"\"`},
		{"subject", "\x85"},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		headers := with(someEvent, "team", "a")
		headers[name] = value
		requireSameAsSDK(t, natsOf(headers, someData))
		requireSameAsSDK(t, kafkaOf(headers, someData))
	})
}

// FuzzParseStructured reads what others have stored as an event. What can be read is written as a
// document that reads as the same event, and holds no more than what was read.
func FuzzParseStructured(f *testing.F) {
	f.Add(event.AppendStructured(nil, full()))
	for _, document := range []string{
		`{"specversion":"1.0","id":"1","source":"s","type":"t","a\":\"x\",\"id":"2"}`,
		`{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"MSwiaWQiOiIyIg=="}`,
		`{"specversion":"1.0","id":"1","source":"s","type":"t","time":"9999-12-31T23:59:59-01:00"}`,
		`{"specversion":"1.0","id":"1","source":"s","type":"t","data": [ 1 ] ,"initial":true,"x":null}`,
		`{"specversion":"1.0","id":"\ud800","source":"s","type":"t"}`, `{"specversion":"1.0","id":"1","id":"2","source":"s","type":"t"}`, `{"data":[[[[`, `[]`,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		requireSameAsSDK(t, new(event.Message).ReadDocument(document))
		e, err := event.ParseStructured(document)
		if err != nil {
			return
		}
		if len(e.Data) > len(document) {
			t.Errorf("%d bytes hold data of %d", len(document), len(e.Data))
		}
		written := event.AppendStructured(nil, &e)
		again, err := event.ParseStructured(written)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", document, written, err)
		}
		_, got := attributes(&again)
		if _, want := attributes(&e); !maps.Equal(got, want) {
			t.Errorf("attributes %q, want %q", got, want)
		}
		if !bytes.Equal(again.Data, e.Data) {
			t.Errorf("data %q, want %q", again.Data, e.Data)
		}
	})
}
