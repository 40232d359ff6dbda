package query_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

func podEvent(i, version int, op event.Op, at time.Time) *event.Event {
	name := fmt.Sprintf("web-%d", i)
	e := &event.Event{
		ID: fmt.Sprint(name, "/", version), Source: "/clusters/prod", Op: op, Time: at,
		Type: "dev.kubebridge.resource." + string(op), PartitionKey: "pods/shop/" + name,
		Sequence: fmt.Sprintf("00000000.%020d", version), ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop",
			Name: name, UID: name, ResourceVersion: fmt.Sprint(version),
		}, Informer: "all", Data: []byte(`{"metadata":{"name":"` + name + `"}}`),
	}
	if op == event.Deleted {
		e.Sequence += ".deleted"
	}
	return e
}

// A state looks at what lived, not at all names that were ever known.
func TestCandidates(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	began := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	const live, names = 20, 2000
	var batch []*event.Event
	for i := range names {
		at := began.Add(time.Duration(i) * time.Minute)
		batch = append(batch, podEvent(i, 10*i+10, event.Updated, at),
			podEvent(i, 10*i+11, event.Updated, at.Add(time.Second)))
		if i >= live {
			batch = append(batch, podEvent(i-live, 10*i+12, event.Deleted, at.Add(2*time.Second)))
		}
	}
	_, err = db.Writer.Append(t.Context(), batch)
	testkit.OK(t, err)
	units := db.Questions.Resources.Units()
	for i := live; i < names; i += 77 {
		for _, p := range []query.Point{{At: began.Add(time.Duration(i) * time.Minute)}, {Version: uint64(10*i + 10)}, {}} {
			q := query.StateQuery{Units: units, Namespace: "shop", At: p}
			n, err := db.Questions.Objects.Candidates(q)
			if err != nil || n < live || n > live+1 {
				t.Errorf("at %v: %d names, %v; %d lived", p, n, err, live)
			}
		}
	}
}
