package verify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// debeziumStream is a snapshot of one object, an update that comes twice, a gap and a delete.
func debeziumStream(t *testing.T) []event.Event {
	t.Helper()
	pods := resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	m, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods, Payload: event.PayloadDebezium})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	object := func(version string) *resource.Object {
		return &resource.Object{Raw: fmt.Appendf(nil, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"%s"}}`, version)}
	}
	change := func(op event.Op, before, version string, later time.Duration) event.Event {
		c := event.Change{
			Op: op, Key: "n/a", UID: "u", Version: resource.Version(version), Before: resource.Version(before), Object: object(version),
			Origin: event.Origin{Time: at.Add(later), TimeSource: event.TimeObserved}, Initial: before == "",
		}
		if op == event.Updated {
			c.Old = object(before)
		}
		return m.Object(&c)
	}
	return []event.Event{
		change(event.Added, "", "5", 0), m.Synced("5", event.Listing{Items: 1}, event.IDSuffix{}, at),
		change(event.Updated, "5", "6", 0), change(event.Updated, "5", "6", time.Second),
		m.Gap(&resource.Relist{Reason: resource.ReasonExpired, From: "6", To: "9"}, time.Time{}, event.IDSuffix{}, at),
		m.Synced("9", event.Listing{Items: 1}, event.IDSuffix{}, at),
		change(event.Deleted, "6", "10", 2*time.Second),
	}
}

func TestDebezium(t *testing.T) {
	t.Run("a stream without a fault has none, and its gap has a reason", func(t *testing.T) {
		r := check(debeziumStream(t))
		if !r.OK || r.Repeats != 1 || !strings.Contains(fmt.Sprintf("%+v", r), resource.ReasonExpired) {
			t.Errorf("%+v\n%s", r, describe(r))
		}
	})
	for name, from := range map[string]string{
		"a row after that is of another version": `"resourceVersion":"6"`, "a row before that is of another version": `"resourceVersion":"5"`,
	} {
		t.Run(name+" is a fault", func(t *testing.T) {
			events := debeziumStream(t)
			data := string(events[2].Data)
			events[2].Data = []byte(strings.Replace(data, from, `"resourceVersion":"7"`, 1))
			if string(events[2].Data) == data {
				t.Fatal("nothing was changed")
			}
			if r := check(events); r.OK || !strings.Contains(describe(r), "in its data") && !strings.Contains(describe(r), "its data has") {
				t.Errorf("%s", describe(r))
			}
		})
	}
}
