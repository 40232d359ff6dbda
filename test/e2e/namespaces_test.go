package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

const selectedNamespaces = `
informers:
  - {name: team, resources: [configmaps], namespaceSelector: "team=${NS}"}
`

// teams are namespaces that are labelled and not.
type teams struct {
	*lab
	names []string
	is    map[string]bool
}

func newTeams(l *lab, n int) *teams {
	s := &teams{lab: l, is: map[string]bool{}}
	for i := range n {
		name := fmt.Sprintf("%s-%d", l.namespace, i)
		_, err := l.client.CoreV1().Namespaces().Create(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(l.t, err)
		s.names = append(s.names, name)
	}
	return s
}

// relabel takes a namespace in, or out.
func (s *teams) relabel(name string) {
	s.t.Helper()
	s.is[name] = !s.is[name]
	value := "null"
	if s.is[name] {
		value = strconv.Quote(s.namespace)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"team":%s}}}`, value)
	_, err := s.client.CoreV1().Namespaces().Patch(s.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(s.t, err)
}

// churn changes something, over and over, until it is stopped.
func (l *lab) churn(change func(ctx context.Context, n int) error) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	failed := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			if err := change(ctx, n); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
			select {
			case <-ctx.Done():
				failed <- nil
				return
			case <-time.After(5 * time.Millisecond): // the rate of changes
			}
		}
	}()
	return func() {
		l.t.Helper()
		cancel()
		must(l.t, <-failed)
	}
}

// more waits for some changes.
func (l *lab) more(ledger *truth.Ledger) {
	l.t.Helper()
	seen := ledger.Len()
	eventually(l.t, "changes", testPatience, func() []string {
		if ledger.Len() < seen+30 {
			return []string{"too few"}
		}
		return nil
	})
}

// change changes a config map in one of the namespaces.
func (s *teams) change(ctx context.Context, n int) error {
	maps := s.client.CoreV1().ConfigMaps(s.names[n%len(s.names)])
	name := fmt.Sprint("map-", rand.IntN(6))
	patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, n)
	var err error
	switch {
	case rand.IntN(5) == 0:
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		_, err = maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, configMap(name, map[string]string{"value": fmt.Sprint(n)}), metav1.CreateOptions{})
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// TestNamespaceLabels relabels namespaces under load, while the bridge runs, is
// killed, and is stopped. Whoever reads the stream must hold what the selected namespaces hold,
// with the versions of each object in order and without a hole while its namespace is selected; and
// a restart lists nothing of it.
func TestNamespaceLabels(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	s := newTeams(l, 3)
	var collections []truth.Collection
	for _, name := range s.names {
		collections = append(collections, truth.Core("configmaps", name))
	}
	ledger := l.witness(collections...)
	s.relabel(s.names[0])
	b := l.bridge("bridge", selectedNamespaces+embedded)
	l.start(b)
	stop := s.churn(s.change)
	for round := range 8 {
		s.relabel(s.names[round%3])
		l.more(ledger)
		switch round % 4 {
		case 0, 2:
			b.Kill()
		case 1:
			l.stop(b)
		default:
			continue
		}
		s.relabel(s.names[(round+1)%3])
		l.more(ledger)
		l.start(b)
	}
	l.more(ledger)
	stop()
	for _, name := range s.names { // one is not selected at the end
		if s.is[name] != (name != s.names[2]) {
			s.relabel(name)
		}
	}
	var events []read.Event
	eventually(t, "what the selected namespaces hold", testPatience, func() (problems []string) {
		var err error
		if events, err = jetStream(b).Refresh(l.ctx); err != nil {
			return []string{err.Error()}
		}
		return s.compare(events, ledger.Changes())
	})
	s.count(events)

	l.stop(b)
	place := l.end()
	l.start(b)
	s.relabel(s.names[2])
	eventually(t, "a namespace that comes in after the restart", testPatience, func() []string {
		events, err := jetStream(b).Refresh(l.ctx)
		must(t, err)
		return s.compare(events, ledger.Changes())
	})
	for _, r := range l.requestsSince(place) {
		all := r.Resource == "configmaps" && !strings.Contains(r.URI, "/namespaces/")
		if all && (r.Verb == "list" && r.Query("limit") != "1" || r.Query("sendInitialEvents") != "") {
			t.Errorf("the bridge listed everything: %s", r)
		}
	}
	l.stop(b)
}

// count shows what the test has seen, and fails when that is not enough to show anything.
func (s *teams) count(events []read.Event) {
	s.t.Helper()
	kinds := map[string]int{}
	for i := range events {
		kinds[events[i].Op()]++
		kinds[events[i].Attribute("cause")]++
		if strings.Contains(events[i].ID(), "/entered/") {
			kinds["entered again"]++
		}
	}
	s.t.Logf("%d events: %v", len(events), kinds)
	for _, kind := range []string{"added", "updated", "deleted", "left-selector", "entered again"} {
		if kinds[kind] == 0 {
			s.t.Errorf("no %s among the events: the test shows nothing", kind)
		}
	}
	if kinds["gap"] > 0 {
		s.t.Errorf("%d gaps were reported", kinds["gap"])
	}
}

// held is what a reader holds of a name.
type held struct {
	uid     string
	alive   bool
	version uint64
}

// compare reads a stream as a consumer would, and compares it with what happened.
func (s *teams) compare(events []read.Event, changes []truth.Change) (problems []string) {
	holds, ids := map[string]*held{}, map[string]bool{}
	versions := map[string][]uint64{} // by uid
	for _, c := range changes {
		if c.Type != "DELETED" {
			versions[c.Metadata.UID] = append(versions[c.Metadata.UID], number(c.Metadata.ResourceVersion))
		}
	}
	for i := range events {
		e := &events[i]
		if !e.AboutObject() || ids[e.ID()] {
			continue
		}
		ids[e.ID()] = true
		key, uid, version := e.Attribute("namespace")+"/"+e.Attribute("name"), e.Attribute("uid"), number(e.Attribute("resourceversion"))
		h := holds[key]
		if h == nil {
			h = &held{}
			holds[key] = h
		}
		if e.Op() == "deleted" {
			if e.Attribute("cause") == "" {
				problems = append(problems, "no cause: "+e.ID())
			}
			h.alive = h.alive && h.uid != uid
			continue
		}
		if h.alive && h.uid == uid {
			if version <= h.version {
				problems = append(problems, fmt.Sprintf("after version %d of %s: %s", h.version, key, e.ID()))
			}
			if n := slices.IndexFunc(versions[uid], func(v uint64) bool { return v > h.version && v < version }); n >= 0 {
				problems = append(problems, fmt.Sprintf("version %d of %s was lost before %s", versions[uid][n], key, e.ID()))
			}
		}
		*h = held{uid, true, version}
	}
	return append(problems, s.compareState(holds, changes)...)
}

// compareState compares what a reader holds with what exists.
func (s *teams) compareState(holds map[string]*held, changes []truth.Change) (problems []string) {
	alive := map[string]truth.Change{}
	for _, c := range truth.Alive(changes) {
		alive[c.Key()] = c
	}
	for key, c := range alive {
		h := holds[key]
		is := h != nil && h.alive
		switch selected := s.is[c.Metadata.Namespace]; {
		case selected != is:
			problems = append(problems, fmt.Sprintf("%s: selected is %t, and a reader holds it is %t", key, selected, is))
		case selected && (h.uid != c.Metadata.UID || h.version != number(c.Metadata.ResourceVersion)):
			problems = append(problems, fmt.Sprintf("%s: a reader holds version %d, not %s", key, h.version, c.Metadata.ResourceVersion))
		}
	}
	for key, h := range holds {
		if _, exists := alive[key]; h.alive && !exists {
			problems = append(problems, key+" is gone, and a reader holds it")
		}
	}
	return problems
}

func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
