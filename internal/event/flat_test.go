package event_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// record is a flat record as a table reads it.
func record(t *testing.T, e *event.Event) map[string]any {
	t.Helper()
	text := event.AppendFlat(nil, e)
	var row map[string]any
	if err := json.Unmarshal(text, &row); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return row
}

// aboutInformer are events without an object.
func aboutInformer(t *testing.T) map[string]event.Event {
	t.Helper()
	m, err := event.NewMaker(event.MakerConfig{
		Cluster: "ü 1", Informer: "all", Type: resource.Type{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return map[string]event.Event{
		"gap":      m.Gap(&resource.Relist{Reason: resource.ReasonExpired, From: "7", To: "9"}, at, event.IDSuffix{}, at),
		"synced":   m.Synced("9", event.Listing{Items: 1}, event.IDSuffix{}, at),
		"progress": m.Progress("9", event.Unwatched{}, event.IDSuffix{}, at),
		"quarantined": m.Quarantined(&resource.Unreadable{
			Key: "n/a", Reason: "too deep", Digest: strings.Repeat("0123456789abcdef", 4),
		}, event.IDSuffix{}, at),
	}
}

func TestFlat(t *testing.T) {
	t.Run("attributes are columns, the object is a text", func(t *testing.T) {
		got := record(t, full())
		want := map[string]any{
			"cluster": "prod", "informer": "workloads", "id": "6a0e/123", "op": "updated", "apigroup": "apps",
			"apiversion": "apps/v1", "kind": "Deployment", "resource": "deployments", "namespace": "shop", "name": "web",
			"uid": "6a0e", "sequence": "00000000000000000123", "resourceversion": "123", "previous": "122",
			"changed": "spec,labels", "manager": "kubectl \"edit\" \\ <é\u2028\t>", "managersubresource": "",
			"manageroperation": "", "lastmanager": "kubelet", "cause": "deleted", "timesource": "",
			"source": "/clusters/prod", "type": "dev.kubebridge.resource.updated",
			"subject": "apis/apps/v1/namespaces/shop/deployments/web", "partitionkey": "deployments.apps/shop/web",
			"datacontenttype": "application/json", "time": "2026-11-21T09:11:12.123456789Z", "notbefore": nil,
			"initial": true, "inferred": true, "traceparent": "00-ab", "another": "1", "data": string(full().Data),
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("record\n%v\nwant\n%v", got, want)
		}
	})
	t.Run("every record has all columns, each of one type", func(t *testing.T) {
		events := aboutInformer(t)
		events["empty"] = event.Event{}
		events["full"] = *full()
		for name, e := range events {
			row := record(t, &e)
			for _, column := range event.FlatColumns() {
				value, found := row[column]
				_, isText := value.(string)
				_, isBoolean := value.(bool)
				switch column {
				case "initial", "inferred":
					isText = isBoolean
				case "time", "notbefore", "data":
					isText = isText && value != "" || value == nil
				}
				if !found || !isText {
					t.Errorf("%s: column %s is %v", name, column, value)
				}
			}
		}
	})
	t.Run("each attribute of an event is a column", func(t *testing.T) {
		var e event.Event
		for _, f := range reflect.ValueOf(&e).Elem().Fields() {
			if f.Kind() == reflect.String {
				f.SetString("x")
			}
		}
		e.ObjectAttributes = event.ObjectAttributes{"x", "x", "x", "x", "x", "x", "x", "x", "x"}
		e.OriginAttributes = event.OriginAttributes{"x", time.Now(), "x", "x", "x", "x", "x", true, true}
		e.Time, e.Data = time.Now(), []byte("{}")
		row := record(t, &e)
		e.Each(func(name, value string) {
			if found := row[name]; name != "specversion" && (found == nil || found == "") {
				t.Errorf("%s is %v, want %s", name, found, value)
			}
		})
	})
	t.Run("names are identifiers of SQL", func(t *testing.T) {
		for _, name := range event.FlatColumns() {
			if !regexp.MustCompile(`^[a-z]+$`).MatchString(name) {
				t.Errorf("%q", name)
			}
		}
	})
	t.Run("times have one length, in UTC", func(t *testing.T) {
		e := full()
		e.Time = time.Date(2026, 11, 21, 1, 0, 0, 0, time.FixedZone("", 7200))
		if got := record(t, e)["time"]; got != "2026-11-20T23:00:00.000000000Z" {
			t.Error(got)
		}
	})
	t.Run("an attribute with the name of a column does not take its place", func(t *testing.T) {
		e := full()
		e.Extensions = []event.Attribute{{Name: "cluster", Value: "other"}, {Name: "data", Value: "1"}}
		if text := event.AppendFlat(nil, e); bytes.Count(text, []byte(`"cluster":`)) != 1 ||
			bytes.Count(text, []byte(`"data":`)) != 1 {
			t.Errorf("%s", text)
		}
		for _, name := range event.FlatColumns() {
			if event.CheckAttribute(name) == nil {
				t.Errorf("a configuration may add the attribute %s", name)
			}
		}
	})
	t.Run("a dead letter has its reason", func(t *testing.T) {
		e := full()
		e.Extensions = []event.Attribute{{Name: "deadletterreason", Value: "too large"}, {Name: "deadletterattempts", Value: "3"}}
		if row := record(t, e); row["deadletterreason"] != "too large" || row["deadletterattempts"] != "3" {
			t.Errorf("%v", row)
		}
	})
	t.Run("an event that was read back has its cluster", func(t *testing.T) {
		for source, want := range map[string]string{
			event.SourceOf("prod"): "prod", event.SourceOf("ü 1/%"): "ü 1/%", "/clusters/%zz": "%zz", "urn:x": "",
		} {
			if got := record(t, &event.Event{Source: source})["cluster"]; got != want {
				t.Errorf("%s: cluster %q", source, got)
			}
		}
	})
	t.Run("it costs no allocation", func(t *testing.T) {
		e, buf := sample(), make([]byte, 0, 16<<10)
		if n := testing.AllocsPerRun(100, func() { buf = event.AppendFlat(buf[:0], e) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestParseFlat(t *testing.T) {
	t.Run("a record is read back as the event", func(t *testing.T) {
		events := aboutInformer(t)
		events["full"] = *full()
		for name, e := range events {
			text := event.AppendFlat(nil, &e)
			want, err := event.ParseStructured(event.AppendStructured(nil, &e))
			if err != nil {
				t.Fatal(err)
			}
			header := map[string][]string{"content-type": {event.FlatContentType + "; charset=UTF-8"}}
			var m event.Message
			for _, read := range []*event.Message{
				new(event.Message).ReadDocument(text), m.ReadNATS(header, text),
				new(event.Message).ReadKafka(func(yield func(string, []byte) bool) {
					yield("content-type", []byte(event.FlatContentType))
				}, text),
			} {
				if got, err := read.Decode(); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: event\n%+v\nwant\n%+v, %v", name, got, want, err)
				}
				if got, err := read.Event(); err != nil || got.ID != want.ID || string(got.Data) != string(want.Data) {
					t.Errorf("%s: the SDK reads %+v, %v", name, got, err)
				}
			}
		}
	})
	t.Run("an attribute of a structured event makes it no record", func(t *testing.T) {
		e := full()
		e.Extensions = []event.Attribute{{Name: "apigroup", Value: "x"}}
		got, err := new(event.Message).ReadDocument(event.AppendStructured(nil, e)).Decode()
		if err != nil || !bytes.Equal(got.Data, e.Data) {
			t.Errorf("%+v, %v", got, err)
		}
	})
	for name, document := range map[string]string{
		"data must be JSON":              `{"apigroup":"","id":"1","source":"s","type":"t","data":"{"}`,
		"data must be a text":            `{"apigroup":"","id":"1","source":"s","type":"t","data":{}}`,
		"a record has an id":             `{"apigroup":"","id":"","source":"s","type":"t"}`,
		"a record that ends too soon":    `{"apigroup":"","id":"1","source":"s","type":"t","data":"`,
		"a time must be one of RFC 3339": `{"apigroup":"","id":"1","source":"s","type":"t","time":"now"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := new(event.Message).ReadDocument([]byte(document)).Decode(); err == nil {
				t.Errorf("it was read as %+v", e)
			}
		})
	}
}

// FuzzFlat puts any text into an attribute and into the payload. A reader gets them back, invalid
// UTF-8 replaced.
func FuzzFlat(f *testing.F) {
	for _, text := range []string{"kubectl", `"\`, "\x00\x1f\u2028", "\xff\xfe", "é<&>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := full()
		e.Manager = text
		e.Data, _ = json.Marshal(map[string]string{"text": text})
		row := record(t, e)
		if want := strings.ToValidUTF8(string([]rune(text)), "\ufffd"); row["manager"] != want {
			t.Errorf("manager %q came back as %q", text, row["manager"])
		}
		if row["data"] != string(e.Data) {
			t.Errorf("data %q, want %q", row["data"], e.Data)
		}
		if _, err := new(event.Message).ReadDocument(event.AppendFlat(nil, e)).Decode(); err != nil && text != "" {
			t.Error(err)
		}
	})
}
