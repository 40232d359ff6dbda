package event_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

const (
	webBefore = `{"kind":"Deployment","metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":1}}`
	webAfter  = `{"kind":"Deployment","metadata":{"name":"web","managedFields":[{}]},"spec":{"replicas":2}}`
)

func row(version, object string) string {
	return `{"uid":"u","namespace":"shop","name":"web","resourceversion":"` + version + `","object":` + object + `}`
}

// update is a change that Debezium's form has both rows of.
func update() event.Change {
	return event.Change{
		Op: event.Updated, Key: "shop/web", UID: "u", Version: "8", Before: "7",
		Object: &resource.Object{Raw: []byte(webAfter)}, Old: &resource.Object{Raw: []byte(webBefore)},
		Origin: event.Origin{
			Time: observed, TimeSource: event.TimeObserved,
			By: resource.FieldManager{Manager: `kubectl "edit"`, Operation: "Update"},
		}, Observed: observed.Add(time.Second),
	}
}

func debezium(t *testing.T, c event.Change) event.Event {
	t.Helper()
	m := newMaker(t, event.MakerConfig{Type: deployments, Payload: event.PayloadDebezium, CustomAttributes: []event.CustomAttribute{{Name: "db", Path: path(t, "spec.replicas")}}})
	return m.Object(&c)
}

func path(t *testing.T, text string) resource.Path {
	t.Helper()
	p, err := resource.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDebezium(t *testing.T) {
	source := func(snapshot bool, more string) string {
		return fmt.Sprintf(`{"version":"1","connector":"kubebridge","name":"prod","ts_ms":%d,"snapshot":"%v",`+
			`"db":"prod","schema":"apps","table":"deployments",%s}`, observed.UnixMilli(), snapshot, more)
	}
	with := func(change func(*event.Change)) event.Change {
		c := update()
		change(&c)
		return c
	}
	none := func(c *event.Change) { c.Old, c.Before, c.By = nil, "", resource.FieldManager{} }
	for _, tt := range []struct {
		name                      string
		change                    event.Change
		op, before, after, source string
	}{
		{
			"an update", update(), "u", row("7", webBefore), row("8", webAfter),
			source(false, `"id":"u/8","timesource":"observed","sequence":"00000000.00000000000000000008","informer":"workloads","previous":"7",`+
				`"manager":"kubectl \"edit\"","manageroperation":"Update"`),
		},
		{
			"a new object", with(func(c *event.Change) { none(c); c.Op = event.Added }), "c", "null", row("8", webAfter),
			source(false, `"id":"u/8","timesource":"observed","sequence":"00000000.00000000000000000008","informer":"workloads"`),
		},
		{
			"a first list", with(func(c *event.Change) { none(c); c.Op, c.Initial = event.Added, true }), "r", "null", row("8", webAfter),
			source(true, `"id":"u/8","timesource":"observed","sequence":"00000000.00000000000000000008","informer":"workloads"`),
		},
		{
			"a resync", with(func(c *event.Change) { none(c); c.Op, c.Round = event.Synced, 3 }), "r", "null", row("8", webAfter),
			source(false, `"id":"u/8/sync/3","timesource":"observed","sequence":"00000000.00000000000000000008","informer":"workloads"`),
		},
		{
			"an update of what is not known", with(none), "r", "null", row("8", webAfter),
			source(false, `"id":"u/8","timesource":"observed","sequence":"00000000.00000000000000000008","informer":"workloads"`),
		},
		{
			"a delete", with(func(c *event.Change) { none(c); c.Op = event.Deleted }), "d", row("8", webAfter), "null",
			source(false, `"id":"u/deleted","timesource":"observed","sequence":"00000000.00000000000000000008.deleted","informer":"workloads"`),
		},
		{
			"a delete of what is not known", with(func(c *event.Change) { none(c); c.Op, c.Object, c.Inferred = event.Deleted, nil, true }),
			"d", row("8", "null"), "null",
			source(false, `"id":"u/deleted","timesource":"observed","sequence":"00000000.00000000000000000008.deleted","informer":"workloads","inferred":"true"`),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := debezium(t, tt.change)
			want := fmt.Sprintf(`{"before":%s,"after":%s,"source":%s,"op":%q,"ts_ms":%d}`, tt.before, tt.after, tt.source, tt.op, observed.UnixMilli())
			if string(e.Data) != want || e.DataType != "" || !json.Valid(e.Data) {
				t.Errorf("got  %s\nwant %s", e.Data, want)
			}
		})
	}
	t.Run("an event about the informer has no data, and says in an attribute what it says", func(t *testing.T) {
		m := newMaker(t, event.MakerConfig{Type: deployments, Payload: event.PayloadDebezium})
		for _, e := range []event.Event{
			m.Gap(&resource.Relist{Reason: resource.ReasonExpired, From: "7", To: "9"}, time.Time{}, event.IDSuffix{}, observed),
			m.Synced("9", event.Listing{Items: 2}, event.IDSuffix{}, observed),
			m.Progress("9", event.Unwatched{}, event.IDSuffix{}, observed),
			m.Quarantined(&resource.Unreadable{Key: "shop/web", Digest: strings.Repeat("0", 64), Raw: []byte("secret")}, event.IDSuffix{}, observed),
			m.Dropped(event.LossReport{Events: 1, From: "7", To: "9"}, event.IDSuffix{}, 1, observed),
		} {
			said := extension(&e, event.AttrInformerData)
			if e.Data != nil || !json.Valid([]byte(said)) || string(e.InformerData()) != said || strings.Contains(said, "raw") {
				t.Errorf("%s: %s, %q", e.Type, e.Data, said)
			}
		}
	})
}

func TestDebeziumTooLarge(t *testing.T) {
	e := debezium(t, update())
	if small := event.Trimmed(&e); small == nil || strings.Contains(string(small.Data), "managedFields") ||
		!strings.Contains(string(small.Data), `"op":"u"`) || !json.Valid(small.Data) {
		t.Errorf("trimmed to %v", small)
	}
	const partial = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`
	small := event.Reference(&e)
	for _, want := range []string{
		`{"before":` + row("7", partial+`{"name":"web","labels":{"a":"b"}}}`), `"after":` + row("8", partial+`{"name":"web"}}`), `"op":"u"`,
	} {
		if !strings.Contains(string(small.Data), want) || !json.Valid(small.Data) {
			t.Errorf("%s has no %s", small.Data, want)
		}
	}
	if object, ok := event.DebeziumObject(e.Data); !ok || string(object) != webAfter {
		t.Errorf("%v %s", ok, object)
	}
	other := []byte(`{"before":{},"metadata":{"name":"a"}}`)
	if object, ok := event.DebeziumObject(other); ok {
		t.Errorf("an object that begins with before: %s", object)
	}
}

// TestDebeziumTable folds events as engines do that take rows back by what they were: a row that is
// taken back is there, exactly as it is taken back, and in the end the table equals the objects.
func TestDebeziumTable(t *testing.T) {
	type value struct {
		Before, After json.RawMessage
		Op            string
	}
	random := rand.New(rand.NewPCG(1, 2))
	m := newMaker(t, event.MakerConfig{Type: deployments, Payload: event.PayloadDebezium})
	type state struct {
		uid     string
		version resource.Version
		object  *resource.Object
	}
	objects, rows := map[resource.Key]*state{}, map[string]int{}
	apply := func(c *event.Change) {
		e := m.Object(c)
		var v value
		if err := json.Unmarshal(e.Data, &v); err != nil {
			t.Fatal(err)
		}
		if v.Op == "u" || v.Op == "d" {
			if rows[string(v.Before)] == 0 {
				t.Fatalf("%s takes back a row that is not there: %s", e.ID, v.Before)
			}
			if rows[string(v.Before)]--; rows[string(v.Before)] == 0 {
				delete(rows, string(v.Before))
			}
		}
		if v.Op != "d" {
			rows[string(v.After)]++
		}
	}
	for n := range 5000 {
		key := resource.Key(fmt.Sprintf("shop/web-%d", random.IntN(20)))
		version := resource.Version(fmt.Sprint(100 + n))
		object := &resource.Object{Raw: fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%s"},"spec":%d}`, version, random.IntN(3))}
		inferred := random.IntN(10) == 0
		switch s := objects[key]; {
		case s == nil:
			objects[key] = &state{fmt.Sprint("uid-", n), version, object}
			apply(&event.Change{
				Op: event.Added, Key: key, UID: objects[key].uid, Version: version, Object: object, Initial: n < 20, Inferred: inferred,
			})
		case random.IntN(5) == 0:
			delete(objects, key)
			c := event.Change{Op: event.Deleted, Key: key, UID: s.uid, Version: s.version, Before: s.version, Object: s.object, Inferred: inferred}
			if !inferred { // a watch gives the last state with the version of the delete
				c.Version = version
				last := strings.Replace(string(s.object.Raw), string(s.version), string(version), 1)
				c.Object = &resource.Object{Raw: []byte(last)}
			}
			apply(&c)
		default:
			apply(&event.Change{
				Op: event.Updated, Key: key, UID: s.uid, Version: version, Before: s.version, Object: object, Old: s.object, Inferred: inferred,
			})
			s.version, s.object = version, object
		}
	}
	if len(rows) != len(objects) {
		t.Errorf("the table has %d rows, there are %d objects", len(rows), len(objects))
	}
	for text, count := range rows {
		var r struct {
			Namespace, Name string
			Object          json.RawMessage
		}
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if s := objects[resource.Key(r.Namespace+"/"+r.Name)]; count != 1 || s == nil || string(r.Object) != string(s.object.Raw) {
			t.Errorf("%d times %s", count, text)
		}
	}
}
