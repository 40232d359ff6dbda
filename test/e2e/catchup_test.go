package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// behind is of how many objects a bridge says that it has an earlier version on disk.
func (l *lab) behind(b *harness.Bridge) int {
	l.t.Helper()
	m, err := b.Metrics(l.ctx)
	must(l.t, err)
	return int(m.Sum("bridge_catchup_behind_objects"))
}

// versions of the ConfigMaps that there are, by name.
func (l *lab) versions() map[string]string {
	l.t.Helper()
	maps, err := l.client.CoreV1().ConfigMaps(l.namespace).List(l.ctx, metav1.ListOptions{})
	must(l.t, err)
	versions := map[string]string{}
	for _, m := range maps.Items {
		versions[m.Name] = m.ResourceVersion
	}
	return versions
}

// catchesUp waits until what a bridge has on disk is what the API server has.
func (l *lab) catchesUp(b *harness.Bridge) {
	l.t.Helper()
	const quiet = 15 * time.Second // before it begins
	eventually(l.t, "everything on disk is up to date", quiet+testPatience, func() (problems []string) {
		for name, version := range l.versions() {
			body, err := b.Get(l.ctx, fmt.Sprintf("/object?resource=configmaps&namespace=%s&name=%s", l.namespace, name))
			var found []struct{ Object metav1.PartialObjectMetadata }
			if err == nil {
				err = json.Unmarshal(body, &found)
			}
			if err != nil || len(found) != 1 || found[0].Object.ResourceVersion != version {
				problems = append(problems, fmt.Sprintf("%s at %s: %v, %s", name, version, err, body))
			}
		}
		if n := l.behind(b); n > 0 { // counted when the commit is on disk, which is a moment after it can be read
			problems = append(problems, fmt.Sprintf("%d are said to be behind", n))
		}
		return problems
	})
}

// lists are the requests since a place that read objects: neither probes nor watches.
func (l *lab) lists(place int64) (lists []harness.Request) {
	l.t.Helper()
	for _, r := range l.requestsSince(place) {
		if r.Verb == "list" && r.Query("limit") != "1" {
			lists = append(lists, r)
		}
	}
	return lists
}

// What a flood leaves stale is read from the API server.
// A real API server gives pages of all, and one object by its name, to who may list.
func TestFloodCatchup(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	const objects = 30
	l.each(objects, func(i int) { l.createConfigMap(fmt.Sprint("flood-", i), "0") })
	b := l.bridge("bridge", configMaps+embedded, with(map[string]string{"BRIDGE_STATE_BODIES_PER_SECOND": "1"})) // so that any flood leaves some behind
	l.start(b)

	place := l.end()
	for round := 0; l.behind(b) < 2; round++ { // one alone is asked for by its name
		l.each(objects, func(i int) { l.updateConfigMap(fmt.Sprint("flood-", i), fmt.Sprint("round ", round)) })
	}
	l.catchesUp(b)
	if lists := l.lists(place); len(lists) != 1 || lists[0].Query("limit") != "500" || lists[0].Query("fieldSelector") != "" {
		t.Errorf("asked for %v, want one page of all", lists)
	}

	place = l.end()
	for i := 0; l.behind(b) == 0; i++ {
		l.updateConfigMap("flood-7", fmt.Sprint("again ", i))
	}
	_, err := b.Output(l.ctx, "snapshot", "app") // which does not wait for quiet
	must(t, err)
	l.holdsASnapshot(b)
	if lists := l.lists(place); len(lists) != 1 || lists[0].Query("fieldSelector") != "metadata.name=flood-7" {
		t.Errorf("asked for %v, want flood-7", lists)
	}
	l.stop(b)
	for name, version := range l.versions() {
		if got := l.stateGet(b, name); got != version {
			t.Errorf("the state has %s at %s, the API server at %s", name, got, version)
		}
	}
}

// holdsASnapshot waits until the stream holds the newest state of everything, sent because it was
// asked for.
func (l *lab) holdsASnapshot(b *harness.Bridge) {
	l.t.Helper()
	stream := jetStream(b)
	eventually(l.t, "a snapshot in the stream", testPatience, func() (problems []string) {
		events, err := stream.Refresh(l.ctx)
		must(l.t, err)
		missing := l.versions()
		for i := range events {
			if e := &events[i]; e.Type() == "dev.kubebridge.resource.synced" && e.Attribute("resourceversion") == missing[e.Attribute("name")] {
				delete(missing, e.Attribute("name"))
			}
		}
		for name, version := range missing {
			problems = append(problems, name+" at "+version)
		}
		return problems
	})
}

// stateGet is the version of a ConfigMap's body in the state directory of a bridge that does not
// run.
func (l *lab) stateGet(b *harness.Bridge, name string) string {
	l.t.Helper()
	out, err := b.Output(l.ctx, "statedir", "get", "configmaps", l.namespace+"/"+name)
	must(l.t, err)
	var m metav1.PartialObjectMetadata
	must(l.t, json.Unmarshal([]byte(out), &m))
	return m.ResourceVersion
}
