package serve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
)

// The bridge is cut off from 12:00:05 to 12:01:00. Meanwhile web-0 is replaced twice. The deletes,
// and what managedFields do not show, have the time of 12:01. A replay gives the delete of the
// object that its client has before the next one of that name, and nothing of before behind it.
func TestReplayRecreated(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	change := func(op event.Op, version int, uid string, after int) event.Event {
		e := event.Event{
			ID: fmt.Sprint(uid, "/", version), Source: "/clusters/prod", Op: op,
			Time: noon.Add(time.Duration(after) * time.Second), Type: "dev.kubebridge.resource." + string(op),
			PartitionKey: "pods/shop/web-0", Sequence: fmt.Sprintf("00000000.%020d", version),
			OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields},
			ObjectAttributes: event.ObjectAttributes{
				APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "web-0", UID: uid,
				ResourceVersion: fmt.Sprint(version),
			}, Informer: "all", Routing: event.Routing{Version: "v1"},
			Data: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":%q,"resourceVersion":"%d"}}`, uid, version),
		}
		if after >= 60 {
			e.TimeSource = event.TimeObserved
		}
		if op == event.Deleted {
			e.Sequence += ".deleted"
		}
		return e
	}
	// other is of another resource, whose watch was not cut off: from after the first delete.
	other := change(event.Added, 49, "d", 9)
	other.Resource, other.Kind, other.ID, other.PartitionKey = "secrets", "Secret", "d/49", "secrets/shop/web-0"
	s := func(p query.Point) *site {
		return newSite(t, []event.Event{
			change(event.Added, 48, "a", -3600), other, change(event.Deleted, 49, "a", 60),
			change(event.Added, 50, "b", 10), change(event.Updated, 51, "b", 15),
			change(event.Updated, 52, "b", 61), change(event.Deleted, 53, "b", 61),
			change(event.Added, 54, "c", 40), change(event.Updated, 55, "c", 90),
		}, serve.Config{At: p})
	}
	all := []string{"DELETED 49", "ADDED 50", "MODIFIED 51", "DELETED 53", "ADDED 54", "MODIFIED 55"}
	for name, test := range map[string]struct {
		at   query.Point
		from string
		want []string
	}{
		"from before":             {query.Point{At: noon}, "48", all},
		"from a version":          {query.Point{Version: 48}, "48", all},
		"from the first new one":  {query.Point{At: noon.Add(30 * time.Second)}, "51", all[3:]},
		"from the second new one": {query.Point{At: noon.Add(45 * time.Second)}, "54", all[5:]},
		"from after the delete":   {query.Point{At: noon.Add(9 * time.Second)}, "49", all},
		"from a version between":  {query.Point{At: noon}, "50", all[2:]},
	} {
		t.Run(name, func(t *testing.T) {
			_, body := s(test.at).request("GET",
				"/api/v1/pods?watch=true&timeoutSeconds=3&resourceVersion="+test.from, nil)
			var got []string
			for line := range strings.Lines(body) {
				_, kind, _ := strings.Cut(line, `"type":"`)
				kind, _, _ = strings.Cut(kind, `"`)
				_, version, _ := strings.Cut(line, `"resourceVersion":"`)
				version, _, _ = strings.Cut(version, `"`)
				got = append(got, kind+" "+version)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
