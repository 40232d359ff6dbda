package ask

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What is hidden is counted, and a failure is never hidden.
func TestTimelineHides(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	version, last := 100, map[string]string{}
	change := func(resource, name, data string) *event.Event {
		version++
		op := event.Updated
		if last[name] == "" {
			op = event.Added
		}
		e := &event.Event{
			ID: fmt.Sprint(name, "/", version), Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op),
			Op: op, Time: time.Date(2026, 3, 1, 13, 0, version, 0, time.UTC), Informer: "all",
			Sequence: fmt.Sprintf("00000000.%020d", version),
			ObjectAttributes: event.ObjectAttributes{
				Resource: resource, Kind: resource, Namespace: "shop", Name: name, UID: name,
				ResourceVersion: fmt.Sprint(version), Previous: last[name],
			},
			Data: []byte(data),
		}
		last[name] = e.ResourceVersion
		return e
	}
	const owned = `{"kind":"Pod","metadata":{"name":"web-1-a","ownerReferences":[{"kind":"ReplicaSet","name":"web-1","controller":true}]},`
	_, err = db.Writer.Append(t.Context(), []*event.Event{
		change("deployments", "web", `{"kind":"K","metadata":{"name":"web"},"spec":{"replicas":1},"status":{"ready":0}}`),
		change("pods", "web-1-a", owned+`"status":{"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-03-01T13:00:00Z"}}}]}}`),
		change("deployments", "web", `{"kind":"K","metadata":{"name":"web"},"spec":{"replicas":1},"status":{"ready":1}}`),
		change("endpoints", "EP:leader", `{"kind":"K","metadata":{"name":"web"},"spec":{}}`),
		change("pods", "web-1-a", owned+`"status":{"containerStatuses":[{"name":"web","state":{"waiting":{"message":"back-off 10s restarting failed container","reason":"CrashLoopBackOff"}}}]}}`),
		change("deployments", "web", `{"kind":"K","metadata":{"name":"web"},"spec":{"replicas":2},"status":{"ready":1}}`),
	})
	testkit.OK(t, err)
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	ask := func(query string) (versions []string, answer timelineReport) {
		t.Helper()
		text, code := askText(t, h, "timeline", "namespace=shop&since=2026-03-01T12:00:00Z"+query)
		if code != http.StatusOK {
			t.Fatal(text)
		}
		testkit.OK(t, json.Unmarshal([]byte(text), &answer))
		for _, c := range answer.Changes {
			versions = append(versions, c.Version)
		}
		return versions, answer
	}
	want := []string{"106", "105", "101"}
	got, all := ask("&order=newest&hide=status,derived,child")
	if !slices.Equal(got, want) || all.Hidden["status"] != 1 || all.Hidden["derived"] != 1 || all.Hidden["child"] != 1 || all.Changes[1].Owner != "replicaset/web-1" {
		t.Errorf("%v, hidden %v", got, all.Hidden)
	}
	if got, _ = ask("&order=newest"); !slices.Equal(got, []string{"106", "105", "104", "103", "102", "101"}) {
		t.Errorf("nothing is hidden: %v", got)
	}
	got, page := ask("&order=newest&limit=4")
	if !page.More || page.Next == "" || len(got) != 4 {
		t.Errorf("the first page: %v %+v", got, page)
	}
	if got, page = ask("&order=newest&limit=4&before=" + page.Next); page.More || page.Next != "" || !slices.Equal(got, []string{"102", "101"}) {
		t.Errorf("the second page: %v %+v", got, page)
	}
	for query, want := range map[string][]string{
		"&q=web-1": {"105", "102"}, "&q=shop/web&hide=child": {"106", "105", "103", "101"}, "&q=pods/web": {"105", "102"},
		"&q=po/a": {"105", "102"}, "&q=REPLICAS": {"106"}, "&q=endpo": {"104"}, "&q=ep:leader": {"104"}, "&q=nothing": nil,
		"&op=added": {"104", "102", "101"}, "&op=updated,deleted": {"106", "105", "103"},
		"&manager=not+recorded&q=web-1": {"105", "102"}, "&manager=kubectl": nil,
	} {
		if got, _ := ask("&order=newest" + query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, bad := range []string{"&op=changed", "&before=x&order=newest", "&order=any", "&hide=all", "&before=VAAAAAE"} {
		if text, code := askText(t, h, "timeline", bad[1:]); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, code, text)
		}
	}
}
