package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

const selectedHere = `
informers:
  - {name: team, resources: [configmaps], namespaces: ["${NS}"], labelSelector: "team in (a,b),!hidden", selectAt: bridge}
`

// TestLeftSelector relabels objects under load, while the bridge runs, is killed,
// and is stopped. The stream must be exactly what follows from the watch of a witness that selects
// nothing: which events, in which order, with which ids, causes and states.
func TestLeftSelector(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	ledger := l.witness(truth.Core("configmaps", l.namespace))
	b := l.bridge("bridge", selectedHere+embedded)
	l.start(b)
	stop := l.churn(l.relabelSome)
	for round := range 8 {
		l.more(ledger)
		if round%2 == 0 {
			b.Kill()
		} else {
			l.stop(b)
		}
		l.more(ledger)
		l.start(b)
	}
	l.more(ledger)
	stop()
	var events []read.Event
	eventually(t, "what the witness saw", testPatience, func() []string {
		var err error
		if events, err = jetStream(b).Refresh(l.ctx); err != nil {
			return []string{err.Error()}
		}
		return compareSelected(events, ledger.Changes())
	})
	kinds := map[string]int{}
	for i := range events {
		kinds[events[i].Op()+" "+events[i].Attribute("cause")]++
	}
	t.Logf("%d changes, %d events: %v", ledger.Len(), len(events), kinds)
	for _, kind := range []string{"added created", "added entered-selector", "updated ", "deleted deleted", "deleted left-selector"} {
		if kinds[kind] == 0 {
			t.Errorf("no %q among the events: the test shows nothing", kind)
		}
	}
	l.stop(b)
	if problems := compareSelected(events, ledger.Changes()); problems != nil {
		t.Error(problems)
	}
}

// relabelSome changes the label of a config map, and something else; or makes or deletes it.
func (l *lab) relabelSome(ctx context.Context, n int) error {
	maps := l.client.CoreV1().ConfigMaps(l.namespace)
	name := fmt.Sprint("map-", rand.IntN(8))
	labels := []string{`"team":"a"`, `"team":"b"`, `"team":"c"`, `"team":null`, `"hidden":"yes"`, `"hidden":null`, `"other":"x"`}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%s}},"data":{"value":"%d"}}`, labels[rand.IntN(len(labels))], n)
	var err error
	if rand.IntN(6) == 0 {
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	} else if _, err = maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); apierrors.IsNotFound(err) {
		made := configMap(name, map[string]string{"value": strconv.Itoa(n)})
		made.Labels = map[string]string{"team": string("abc"[rand.IntN(3)])}
		_, err = maps.Create(ctx, made, metav1.CreateOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// compareSelected compares a stream with what should be in it.
func compareSelected(events []read.Event, changes []truth.Change) (problems []string) {
	got, want := map[string][]string{}, map[string][]string{}
	for i := range events {
		if e := &events[i]; e.AboutObject() {
			line := fmt.Sprint(e.Op(), " ", e.ID(), " @", e.Attribute("resourceversion"), " ", e.Attribute("cause"), " of ", versionIn(e.Data()))
			got[e.Attribute("name")] = append(got[e.Attribute("name")], line)
		} else if e.Op() != "synced" && e.Op() != "progress" {
			problems = append(problems, "unexpected: "+e.ID())
		}
	}
	selected := map[string]string{} // the version in which an object was selected, by uid
	for _, c := range changes {
		if line := selectedLine(c, selected); line != "" {
			want[c.Metadata.Name] = append(want[c.Metadata.Name], line)
		}
	}
	for name := range want {
		for i, line := range want[name] {
			if i >= len(got[name]) || got[name][i] != line {
				problems = append(problems, fmt.Sprintf("%s: event %d is not %s", name, i, line))
				break
			}
		}
		if len(got[name]) > len(want[name]) {
			problems = append(problems, fmt.Sprintf("%s: too many: %s", name, got[name][len(want[name])]))
		}
	}
	return problems
}

// selectedLine is what has to be reported of a change; "" for nothing.
func selectedLine(c truth.Change, selected map[string]string) string {
	var obj struct {
		Metadata struct{ Labels map[string]string }
	}
	_ = json.Unmarshal(c.Raw, &obj) // the witness has read it
	labels, m := obj.Metadata.Labels, &c.Metadata
	_, hidden := labels["hidden"]
	is := (labels["team"] == "a" || labels["team"] == "b") && !hidden
	last, was := selected[m.UID]
	if is && c.Type != "DELETED" {
		selected[m.UID] = m.ResourceVersion
	} else {
		delete(selected, m.UID)
	}
	switch {
	case !was && (!is || c.Type == "DELETED"):
		return ""
	case c.Type == "DELETED":
		return fmt.Sprintf("deleted %s/deleted @%s deleted of %s", m.UID, m.ResourceVersion, m.ResourceVersion)
	case !is:
		return fmt.Sprintf("deleted %s/%s/left @%s left-selector of %s", m.UID, m.ResourceVersion, m.ResourceVersion, last)
	case was:
		return fmt.Sprintf("updated %s/%s @%s  of %s", m.UID, m.ResourceVersion, m.ResourceVersion, m.ResourceVersion)
	case c.Type == "ADDED":
		return fmt.Sprintf("added %s/%s @%s created of %s", m.UID, m.ResourceVersion, m.ResourceVersion, m.ResourceVersion)
	default:
		return fmt.Sprintf("added %s/%s @%s entered-selector of %s", m.UID, m.ResourceVersion, m.ResourceVersion, m.ResourceVersion)
	}
}

// versionIn is the version of the object in a payload.
func versionIn(data []byte) string {
	var obj struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(data, &obj) // no version then, which no event should have
	return obj.Metadata.ResourceVersion
}
