package ask

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	speedObjects  = flag.Int("speed.objects", 200, "objects of TestPageSpeed")
	speedVersions = flag.Int("speed.versions", 2000, "versions of TestPageSpeed")
)

// TestPageSpeed logs how long the questions of the timeline take in a large history: pods of
// ReplicaSets of Deployments. The everyday form is small.
func TestPageSpeed(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	began := time.Now().Add(-time.Hour)
	var events []*event.Event
	for n := range *speedVersions {
		i, version, op := n%*speedObjects, 100+n, event.Updated
		if n < *speedObjects {
			op = event.Added
		}
		name, resource, kind, group, by := fmt.Sprint("web-", i), "pods", "Pod", "", fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-%d","controller":true}`, i/10*10+1)
		switch i % 10 {
		case 0:
			resource, kind, group, by = "deployments", "Deployment", "apps", ""
		case 1:
			resource, kind, group, by = "replicasets", "ReplicaSet", "apps", fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","name":"web-%d","controller":true}`, i/10*10)
		}
		e := &event.Event{
			ID: fmt.Sprint(version), Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op), Op: op,
			Routing: event.Routing{Group: group}, Time: began.Add(time.Duration(n) * time.Hour / time.Duration(*speedVersions)), Informer: "all", Sequence: fmt.Sprintf("00000000.%020d", version),
			ObjectAttributes: event.ObjectAttributes{Resource: resource, Kind: kind, Namespace: "shop", Name: name, UID: name, ResourceVersion: fmt.Sprint(version)},
			Data:             fmt.Appendf(nil, `{"kind":%q,"metadata":{"name":%q,"ownerReferences":[%s]},"spec":{"replicas":%d},"status":{"ready":%d}}`, kind, name, by, n, n),
		}
		if op == event.Updated {
			e.Previous = fmt.Sprint(version - *speedObjects)
		}
		events = append(events, e)
	}
	for batch := range slices.Chunk(events, 1000) {
		_, err = db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
	}
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	for _, q := range []string{
		"lanes?namespace=shop&since=2h+ago", "timeline?namespace=shop&since=2h+ago&order=newest&limit=200&hide=status,derived,child",
		"timeline?namespace=nothing&since=2h+ago&order=newest", "search?q=web-1", "losses?since=7d+ago", "compare?namespace=shop&a=30m+ago",
	} {
		name, query, _ := strings.Cut(q, "?")
		var times []time.Duration
		size := 0
		for range 3 {
			start := time.Now()
			text, code := askText(t, h, name, query)
			if code != http.StatusOK {
				t.Fatal(text)
			}
			times, size = append(times, time.Since(start)), len(text)
		}
		t.Logf("%-30.30s %8v cold, %8v at best of 3, %d bytes", q, times[0].Round(10*time.Microsecond), slices.Min(times).Round(10*time.Microsecond), size)
		if text, _ := askText(t, h, name, query); name == "lanes" && strings.Count(text, `"children":{"pods":8,"replicasets.apps":1}`) != min(*speedObjects/10, mostLanes) {
			t.Errorf("each Deployment owns 9 objects:\n%.2000s", text)
		}
		if size > 4<<20 {
			t.Errorf("%s: %d bytes", q, size)
		}
	}
}
