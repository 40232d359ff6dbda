package event_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

func extension(e *event.Event, name string) string {
	value := ""
	e.Each(func(n, v string) {
		if n == name {
			value = v
		}
	})
	return value
}

const lastApplied = `"kubectl.kubernetes.io/last-applied-configuration":"{\"a\":[1,2]}\n"`

// Trimming cuts what is expendable, and nothing else.
func TestTrim(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"the only annotation":   {`{"kind":"Pod","metadata":{"annotations":{` + lastApplied + `},"name":"a"}}`, `{"kind":"Pod","metadata":{"annotations":{},"name":"a"}}`},
		"the first of two":      {`{"metadata":{"annotations":{` + lastApplied + ` , "b":"c"}}}`, `{"metadata":{"annotations":{ "b":"c"}}}`},
		"the last of two":       {`{"metadata":{"annotations":{"b":"c", ` + lastApplied + ` }}}`, `{"metadata":{"annotations":{"b":"c" }}}`},
		"in the middle":         {`{"metadata":{"annotations":{"b":"c",` + lastApplied + `,"d":"e"}},"spec":1}`, `{"metadata":{"annotations":{"b":"c","d":"e"}},"spec":1}`},
		"managed fields":        {`{"metadata":{"managedFields":[{"manager":"x"}],"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		"both":                  {`{"metadata":{"managedFields":[{}],"annotations":{` + lastApplied + `}}}`, `{"metadata":{"annotations":{}}}`},
		"old and new object":    {`{"object":{"metadata":{"managedFields":[]}},"old":{"metadata":{"managedFields":[],"name":"a"}},"patch":[]}`, `{"object":{"metadata":{}},"old":{"metadata":{"name":"a"}},"patch":[]}`},
		"nothing":               {`{"metadata":{"name":"a"}}`, ""},
		"the same name in spec": {`{"spec":{"metadata":{"managedFields":[]}}}`, ""},
		"no object":             {`[1,{"metadata":{"managedFields":[]}}]`, ""},
		"no JSON":               {`{"metadata":{"annot`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := &event.Event{ID: "1", Data: []byte(c.data), Extensions: []event.Attribute{{Name: "a", Value: "b"}}}
			small := event.Trimmed(e)
			if string(e.Data) != c.data || len(e.Extensions) != 1 {
				t.Errorf("the event itself was changed: %s", e.Data)
			}
			if c.want == "" {
				if small != nil {
					t.Errorf("got %s", small.Data)
				}
				return
			}
			if small == nil || string(small.Data) != c.want {
				t.Fatalf("got %v\nwant %s", small, c.want)
			}
			if !json.Valid(small.Data) {
				t.Errorf("not JSON: %s", small.Data)
			}
			sum := sha256.Sum256([]byte(c.data))
			if extension(small, "oversize") != "trimmed" || extension(small, "originalsha256") != hex.EncodeToString(sum[:]) || extension(small, "a") != "b" {
				t.Errorf("attributes %v", small.Extensions)
			}
		})
	}
}

// A reference holds the metadata.
func TestReferencePayload(t *testing.T) {
	meta := `{"name":"a","labels":{"x":"y"}}`
	for name, data := range map[string]string{
		"of an object": `{"kind":"Pod","spec":{"metadata":{"name":"wrong"}}, "metadata" : ` + meta + `,"status":{}}`,
		"of a change":  `{"object":{"spec":[],"metadata":` + meta + `},"old":{"metadata":{"name":"wrong"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			small := event.Reference(&event.Event{ID: "1", Data: []byte(data)})
			var got, want any
			if err := json.Unmarshal(small.Data, &got); err != nil {
				t.Fatal(err)
			}
			_ = json.Unmarshal([]byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`+meta+`}`), &want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %s", small.Data)
			}
			if extension(small, "oversize") != "reference" || extension(small, "originalsize") == "" {
				t.Errorf("attributes %v", small.Extensions)
			}
		})
	}
	if small := event.Reference(&event.Event{Data: []byte(`[1]`)}); small.Data != nil {
		t.Errorf("of something without metadata: %s", small.Data)
	}
}

func FuzzTrim(f *testing.F) {
	f.Add([]byte(`{"metadata":{"managedFields":[],"annotations":{` + lastApplied + `}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 || !json.Valid(data) {
			return // Skip takes longer than most executions
		}
		e := &event.Event{Data: data}
		for _, small := range []*event.Event{event.Trimmed(e), event.Reference(e)} {
			if small != nil && small.Data != nil && !json.Valid(small.Data) {
				t.Errorf("%q became %q", data, small.Data)
			}
		}
	})
}
