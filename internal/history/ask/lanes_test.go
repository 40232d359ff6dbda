package ask

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Objects are folded under what owns them, and the size of the answer does not follow the changes.
func TestLanes(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	began := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	version, last := 100, map[string]string{}
	change := func(group, resource, kind, name, owner, rest string) *event.Event {
		version++
		op := event.Updated
		if last[name] == "" {
			op = event.Added
		}
		e := &event.Event{
			ID: fmt.Sprint(name, "/", version), Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op),
			Op: op, Routing: event.Routing{Group: group}, Time: began.Add(time.Duration(version) * time.Second), Informer: "all", Sequence: fmt.Sprintf("00000000.%020d", version),
			ObjectAttributes: event.ObjectAttributes{
				Resource: resource, Kind: kind, Namespace: "shop", Name: name, UID: name,
				ResourceVersion: fmt.Sprint(version), Previous: last[name],
			},
			Data: fmt.Appendf(nil, `{"kind":%q,"metadata":{"name":%q,"ownerReferences":[%s]},%s}`, kind, name, owner, rest),
		}
		last[name] = e.ResourceVersion
		return e
	}
	web := func(n int) *event.Event { // its status follows
		return change("apps", "deployments", "Deployment", "web", "", fmt.Sprintf(`"spec":{"replicas":%d}`, n))
	}
	const of = `{"apiVersion":"apps/v1","kind":%q,"name":%q,"controller":true}`
	events := []*event.Event{
		web(1),
		change("apps", "replicasets", "ReplicaSet", "web-1", fmt.Sprintf(of, "Deployment", "web"), `"spec":{}`),
		change("", "pods", "Pod", "web-1-a", fmt.Sprintf(of, "ReplicaSet", "web-1"), `"status":{"containerStatuses":[{"name":"web","state":{"running":{}}}]}`),
		change("", "pods", "Pod", "web-1-a", fmt.Sprintf(of, "ReplicaSet", "web-1"), `"status":{"containerStatuses":[{"name":"web","state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}`),
		web(2),
		change("", "pods", "Pod", "alone", "", `"spec":{}`),
		change("", "events", "Event", "noise", "", `"reason":"x"`),
	}
	for n := range 30 {
		events = append(events, web(10+n))
	}
	_, err = db.Writer.Append(t.Context(), events)
	testkit.OK(t, err)
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	ask := func(query string) (answer struct {
		Lanes []struct {
			Resource, Name    string
			Changes, Failures int
			Existed           bool
			Points, Buckets   [][]any
			Children          map[string]int
			ChildBuckets      [][]int
		}
		More, Changes int
		Hidden        map[string]int
		Managers      map[string]int
		Histogram     []int
	},
	) {
		t.Helper()
		text, code := askText(t, h, "lanes", "namespace=shop&since=2026-03-01T13:00:00Z&until=2026-03-01T14:00:00Z"+query)
		if code != http.StatusOK {
			t.Fatal(text)
		}
		testkit.OK(t, json.Unmarshal([]byte(text), &answer))
		return answer
	}
	all := ask("")
	if len(all.Lanes) != 2 || all.Lanes[0].Name != "web" || all.Lanes[1].Name != "alone" {
		t.Fatalf("lanes: %+v", all.Lanes)
	}
	if l := all.Lanes[0]; len(l.Points) != 32 || l.Existed || l.Children["pods"] != 1 || l.Children["replicasets.apps"] != 1 || l.Failures != 1 || len(l.ChildBuckets) == 0 {
		t.Errorf("web: %+v", l)
	}
	shown := len(events)
	for _, n := range all.Hidden {
		shown -= n
	}
	total := 0
	for _, n := range all.Histogram {
		total += n
	}
	if all.Changes != shown || total != len(events) || all.Hidden["child"] != 2 || all.Hidden["derived"] != 1 {
		t.Errorf("%d changes of %d, %d in the histogram, hidden %v", all.Changes, len(events), total, all.Hidden)
	}
	few := ask("&buckets=10").Lanes[0]
	if few.Points != nil || len(few.Buckets) != 1 || few.Buckets[0][1] != 32.0 {
		t.Errorf("with more changes than parts of the time they are counted: %v %v", few.Points, few.Buckets)
	}
	if got := ask("&q=alone"); len(got.Lanes) != 1 || got.Changes != 1 || got.Managers["not recorded"] != 1 {
		t.Errorf("what is asked for by its name: %+v", got)
	}
	if got := ask("&manager=kubectl"); len(got.Lanes) != 0 || got.Managers["not recorded"] == 0 {
		t.Errorf("what is asked for by its manager: %+v", got)
	}
	if text, _ := askText(t, h, "lanes", "namespace=nothing"); !strings.Contains(text, `"lanes":[]`) {
		t.Errorf("no lane is no list: %s", text)
	}
	for _, bad := range []string{"since=5", "buckets=0", "since=2026-03-01T13:00:00Z&until=2026-03-01T12:00:00Z"} {
		if text, code := askText(t, h, "lanes", bad); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, code, text)
		}
	}
}

// Many objects are looked up at once, in the order of their keys, and each once.
func TestOwnersAtOnce(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	const n = 4 * mostLookups
	var events []*event.Event
	for i := range n {
		name := fmt.Sprint("pod-", i*7919%n) // not in the order of names
		events = append(events, &event.Event{
			ID: name, Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", Op: event.Added, Time: time.Unix(int64(1e9+i), 0), Informer: "all",
			Sequence:         fmt.Sprintf("00000000.%020d", i+1),
			ObjectAttributes: event.ObjectAttributes{Resource: "pods", Kind: "Pod", Namespace: "shop", Name: name, UID: name, ResourceVersion: fmt.Sprint(i + 1)},
			Data:             fmt.Appendf(nil, `{"metadata":{"name":%q,"ownerReferences":[{"kind":"ReplicaSet","apiVersion":"apps/v1","name":"of-%s","controller":true}]}}`, name, name),
		})
	}
	_, err = db.Writer.Append(t.Context(), events)
	testkit.OK(t, err)
	f, asked := newOwners(db.Questions, new(ownerCache)), 0
	f.all = func() ([]query.Object, error) {
		asked++
		return db.Questions.Timeline.Objects("prod", "*", time.Time{}, time.Time{}, nil)
	}
	for range 2 {
		for e, err := range db.Questions.Timeline.Entries("prod", "*", time.Time{}, time.Time{}, nil) {
			testkit.OK(t, err)
			if by, err := f.find(objectOf(e)); err != nil || by.String() != "replicaset/of-"+e.Event.Name {
				t.Errorf("%s is of %v, %v", e.Event.Name, by, err)
			}
		}
	}
	if asked != 1 || f.lookups != mostLookups+1 {
		t.Errorf("%d look-ups, and %d times all", f.lookups, asked)
	}
}
