package event_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kubebridge/bridge/internal/event"
)

// full is an event with every attribute and text that needs quoting.
func full() *event.Event {
	return &event.Event{
		ID: "6a0e/123", Source: "/clusters/prod", Type: "dev.kubebridge.resource.updated",
		Subject: "apis/apps/v1/namespaces/shop/deployments/web",
		Time:    time.Date(2026, 11, 21, 10, 11, 12, 123456789, time.FixedZone("", 3600)), PartitionKey: "deployments.apps/shop/web",
		Sequence: "00000000000000000123", ObjectAttributes: event.ObjectAttributes{
			APIVersion: "apps/v1", Kind: "Deployment", Resource: "deployments",
			Namespace: "shop", Name: "web", UID: "6a0e", ResourceVersion: "123",
			Previous: "122", Changed: "spec,labels",
		},
		OriginAttributes: event.OriginAttributes{
			LastManager: "kubelet", Manager: "kubectl \"edit\" \\ <é\u2028\t>",
			Cause: "deleted", Initial: true, Inferred: true,
		},
		Extensions: []event.Attribute{{Name: "traceparent", Value: "00-ab"}, {Name: "empty"}, {Name: "another", Value: "1"}},
		Data:       []byte("{ \"kind\":\"Deployment\",\n\"n\":1.50, \"e\":\"\\u00e9 é\", \"big\":12345678901234567890 }"),
		Routing:    event.Routing{Cluster: "prod", Group: "apps", Version: "v1"}, Op: event.Updated, Informer: "workloads",
	}
}

func attributes(e *event.Event) (names []string, values map[string]string) {
	values = map[string]string{}
	e.Each(func(name, value string) {
		names = append(names, name)
		values[name] = value
	})
	return names, values
}

// Attributes come in a fixed order, without empty ones.
func TestAttributeOrder(t *testing.T) {
	names, values := attributes(full())
	want := "specversion id source type subject time datacontenttype partitionkey sequence apiversion kind informer resource namespace name " +
		"uid resourceversion previous changed manager lastmanager cause initial inferred traceparent another"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("attributes\n%s\nwant\n%s", got, want)
	}
	for name, want := range map[string]string{
		"specversion": "1.0", "time": "2026-11-21T09:11:12.123456789Z", "datacontenttype": "application/json", "initial": "true",
	} {
		if values[name] != want {
			t.Errorf("%s = %q, want %q", name, values[name], want)
		}
	}
	if names, _ := attributes(&event.Event{ID: "1"}); strings.Join(names, " ") != "specversion id" {
		t.Errorf("attributes of an empty event: %v", names)
	}
}

// Attribute names are those that CloudEvents allows.
func TestCloudEventsNames(t *testing.T) {
	names, _ := attributes(full())
	for _, name := range names {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || len(name) > 20 {
			t.Errorf("%q is not lower-case alphanumeric with up to 20 characters", name)
		}
	}
}

// read parses a structured event with the SDK, which is how a consumer reads it.
func read(t *testing.T, text []byte) (map[string]string, []byte) {
	t.Helper()
	var got cloudevents.Event
	if err := got.UnmarshalJSON(text); err != nil {
		t.Fatalf("the SDK can't read %s: %v", text, err)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the SDK finds %s invalid: %v", text, err)
	}
	values := map[string]string{
		"specversion": got.SpecVersion(), "id": got.ID(), "source": got.Source(), "type": got.Type(), "subject": got.Subject(),
		"datacontenttype": got.DataContentType(),
	}
	if !got.Time().IsZero() {
		values["time"] = got.Time().Format(time.RFC3339Nano)
	}
	for name, value := range got.Extensions() {
		values[name] = value.(string)
	}
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	return values, got.Data()
}

// The SDK of CloudEvents reads structured events.
func TestStructuredEventsInSDK(t *testing.T) {
	noData, noTime := full(), full()
	noData.Data = nil
	noTime.Time = time.Time{}
	for name, e := range map[string]*event.Event{"full": full(), "without data": noData, "without time": noTime} {
		t.Run(name, func(t *testing.T) {
			text := event.AppendStructured([]byte("before"), e)
			values, data := read(t, text[len("before"):])
			_, want := attributes(e)
			if !maps.Equal(values, want) {
				t.Errorf("attributes\n%v\nwant\n%v", values, want)
			}
			if !bytes.Equal(data, e.Data) {
				t.Errorf("data %s, want %s", data, e.Data)
			}
		})
	}
}

// Empty data is no data.
func TestEmptyData(t *testing.T) {
	e := full()
	e.Data = []byte{}
	text := event.AppendStructured(nil, e)
	if _, data := read(t, text); len(data) != 0 {
		t.Errorf("data %s", data)
	}
	if names, _ := attributes(e); slices.Contains(names, "datacontenttype") {
		t.Error("a content type without content")
	}
}

// FuzzStructured puts any text into an attribute and checks that a reader gets it back, invalid
// UTF-8 replaced.
func FuzzStructured(f *testing.F) {
	for _, text := range []string{"kubectl", `"\`, "\x00\x1f\u2028", "\xff\xfe", "é<&>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := full()
		e.Manager = text
		var got struct {
			Manager string
			Data    json.RawMessage
		}
		structured := event.AppendStructured(nil, e)
		if err := json.Unmarshal(structured, &got); err != nil {
			t.Fatalf("%s: %v", structured, err)
		}
		if want := string([]rune(text)); got.Manager != want {
			t.Errorf("manager %q came back as %q", text, got.Manager)
		}
		if !bytes.Equal(got.Data, e.Data) {
			t.Errorf("data %s, want %s", got.Data, e.Data)
		}
	})
}
