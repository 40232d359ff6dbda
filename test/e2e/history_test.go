package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// What an API server does to its history disturbs everybody who watches it, so these tests have
// control planes of their own, and run one after the other.
func TestHistory(t *testing.T) {
	t.Parallel()
	c := still(t)
	installWidgets(t, c)
	t.Run("a compaction during an absence is reported, and only what differs is published", func(t *testing.T) {
		gapIsReportedAndHealed(t, c, listsByWatchList)
	})
	t.Run("an API server that is killed while everything changes leads to no loss", func(t *testing.T) { apiServerIsKilled(t, c) })
	t.Run("a table sorted by sequence is right after a crash and a compaction", func(t *testing.T) { crashedBeforeAGap(t, c) })
	t.Run("who wrote what is right or not reported through a gap", func(t *testing.T) { attributedThroughAGap(t, c) })
	t.Run("a restored etcd is reported as a gap, and what was undone is published", func(t *testing.T) { etcdIsRestored(t, c) })
}

// The history of a server without WatchList.
func TestHistoryWithoutWatchList(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "paged", noControllers, "--etcd-compaction-interval=0",
		"--apiserver-arg=--feature-gates=WatchList=false")
	installWidgets(t, c)
	t.Run("a compaction during an absence is reported, and only what differs is published", func(t *testing.T) {
		gapIsReportedAndHealed(t, c, listsByPages)
	})
	t.Run("a state directory of another cluster is refused", func(t *testing.T) { otherClustersStateIsRefused(t, c, live(t)) })
}

// listsByWatchList fails when not everything was listed by WatchLists.
func listsByWatchList(t *testing.T, requests []harness.Request, resources []truth.Collection) {
	t.Helper()
	byWatch, byPage := lists(requests)
	if byWatch < len(resources) || byPage > 0 {
		t.Errorf("%d WatchLists and %d pages were asked for, want a WatchList for each of %v: %v", byWatch, byPage, resources, requests)
	}
}

// listsByPages fails when not everything was listed by pages, of which the config maps need two.
func listsByPages(t *testing.T, requests []harness.Request, resources []truth.Collection) {
	t.Helper()
	if _, byPage := lists(requests); byPage < len(resources)+1 {
		t.Errorf("%d pages were asked for, want one for each of %v and a second for the config maps: %v", byPage, resources, requests)
	}
}

// lists counts the lists that the API server has answered.
func lists(requests []harness.Request) (byWatch, byPage int) {
	for _, r := range requests {
		switch {
		case r.Code != 200:
		case r.Verb == "watch" && r.Query("sendInitialEvents") == "true":
			byWatch++
		case r.Verb == "list" && r.Query("limit") == "500":
			byPage++
		}
	}
	return byWatch, byPage
}

const history = `
informers:
  - {name: app, resources: [configmaps, services, widgets.example.com], namespaces: ["${NS}"]}
`

func (l *lab) history() []truth.Collection {
	return []truth.Collection{truth.Core("configmaps", l.namespace), truth.Core("services", l.namespace), truth.Named("widgets", "example.com", "v1", l.namespace)}
}

func gapIsReportedAndHealed(t *testing.T, c *cluster, listed func(*testing.T, []harness.Request, []truth.Collection)) {
	l := newLab(t, c)
	witness := l.witness(l.history()...)
	l.populate(600)
	before := l.caughtUp(witness)
	b := l.bridge("bridge", history+embedded)
	place := l.end()
	l.start(b)
	o := check.Options{Informers: informerOf("app", l.history()...)}
	l.matches("the snapshot", b, truth.Snapshot(before), o)
	listed(t, l.requestsSince(place), l.history())
	l.stop(b)

	l.changeEverything()
	after := l.caughtUp(witness)[len(before):]
	witness.Stop()
	l.operate("compact")
	l.operate("restart-apiserver")

	place = l.end()
	l.start(b)
	inferred := truth.Inferred(before, after)
	want := slices.Concat(truth.Snapshot(before), inferred)
	events := l.matches("what differs", b, want, o)
	listed(t, l.requestsSince(place), l.history())
	gapsComeFirst(t, events, "expired", "configmaps", widgetsName)
	if len(inferred) != 10 {
		t.Errorf("%d differences were expected, the test makes 10", len(inferred))
	}
	l.goesOn(b, want, o)
	l.verified(b, "the stream", jetStream(b))
	l.stop(b)
}

// populate makes objects that stay as they are, more than a page of them, and some with a fate.
func (l *lab) populate(unchanged int) {
	l.t.Helper()
	l.each(unchanged, func(i int) { l.createConfigMap(fmt.Sprintf("unchanged-%d", i), "stays") })
	for _, name := range []string{"changed", "deleted", "replaced"} {
		l.createConfigMap(name, "1")
		l.createWidget(name)
	}
}

// changeEverything changes, deletes, replaces and creates, and creates something that nobody will
// ever know of.
func (l *lab) changeEverything() {
	l.t.Helper()
	maps, api := l.client.CoreV1().ConfigMaps(l.namespace), l.dynamic.Resource(widgets).Namespace(l.namespace)
	for i := range 3 {
		l.updateConfigMap("changed", fmt.Sprint("changed ", i))
		_, err := api.Patch(l.ctx, "changed", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"round":%d}}`, i), metav1.PatchOptions{})
		must(l.t, err)
	}
	for _, name := range []string{"deleted", "replaced"} {
		must(l.t, maps.Delete(l.ctx, name, metav1.DeleteOptions{}))
		must(l.t, api.Delete(l.ctx, name, metav1.DeleteOptions{}))
	}
	for _, name := range []string{"replaced", "new", "ephemeral"} {
		l.createConfigMap(name, "2")
		l.createWidget(name)
	}
	must(l.t, maps.Delete(l.ctx, "ephemeral", metav1.DeleteOptions{}))
	must(l.t, api.Delete(l.ctx, "ephemeral", metav1.DeleteOptions{}))
}

func (l *lab) createWidget(name string) {
	l.t.Helper()
	_, err := l.dynamic.Resource(widgets).Namespace(l.namespace).Create(l.ctx, widget(name, map[string]any{"round": int64(0)}), metav1.CreateOptions{})
	must(l.t, err)
}

// caughtUp waits until the witness has seen everything that exists, and gives all changes.
func (l *lab) caughtUp(witness *truth.Ledger) []truth.Change {
	l.t.Helper()
	marker := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	l.createConfigMap(marker, "")
	l.deleteConfigMap(marker)
	l.createWidget(marker)
	must(l.t, l.dynamic.Resource(widgets).Namespace(l.namespace).Delete(l.ctx, marker, metav1.DeleteOptions{}))
	var changes []truth.Change
	eventually(l.t, "the witness", testPatience, func() []string {
		changes = witness.Changes()
		seen := 0
		for _, ch := range changes {
			if ch.Type == "DELETED" && ch.Metadata.Name == marker {
				seen++
			}
		}
		if seen < 2 {
			return []string{fmt.Sprintf("it has seen %d of 2 markers", seen)}
		}
		return nil
	})
	must(l.t, witness.Err())
	return changes
}

// operate does something to the control plane.
func (l *lab) operate(operation string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, startTime)
	defer cancel()
	_, err := l.Operate(ctx, operation)
	must(l.t, err)
}

// matches waits until the stream holds exactly the given changes.
func (l *lab) matches(what string, b *harness.Bridge, want []truth.Change, o check.Options) []read.Event {
	l.t.Helper()
	o.Cluster, o.Began = clusterName, l.began
	stream := jetStream(b)
	var events []read.Event
	eventually(l.t, what, testPatience, func() []string {
		var err error
		if events, err = stream.Refresh(l.ctx); err != nil {
			return []string{err.Error()}
		}
		return check.Compare(want, events, o)
	})
	return events
}

// goesOn checks that live changes are delivered after all.
func (l *lab) goesOn(b *harness.Bridge, want []truth.Change, o check.Options) {
	l.t.Helper()
	witness := l.witnessFromNow()
	l.createConfigMap("goes-on", "1")
	l.updateConfigMap("goes-on", "2")
	l.deleteConfigMap("goes-on")
	eventually(l.t, "the witness", testPatience, func() []string {
		if n := len(witness.Changes()); n < 3 {
			return []string{fmt.Sprintf("it has seen %d of 3 changes", n)}
		}
		return nil
	})
	l.matches("live changes", b, slices.Concat(want, witness.Changes()), o)
}

// witnessFromNow watches config maps, of which those that exist are none of its business.
func (l *lab) witnessFromNow() *truth.Ledger {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	ledger, err := truth.WatchFromNow(ctx, l.Admin(), truth.Core("configmaps", l.namespace))
	must(l.t, err)
	l.t.Cleanup(ledger.Stop)
	return ledger
}

// gapsComeFirst checks that each of the resources has one gap event with the reason, that it comes
// before all that is inferred, and that after it comes the event that the list was worked through.
func gapsComeFirst(t *testing.T, events []read.Event, reason string, resources ...string) {
	t.Helper()
	for _, resource := range resources {
		gaps, inferred, synced := 0, 0, 0
		for i := range events {
			e := &events[i]
			switch {
			case e.GroupResource() != resource:
			case e.Type() == "dev.kubebridge.informer.gap":
				gaps++
				if !strings.Contains(string(e.Data()), fmt.Sprintf("%q:%q", "reason", reason)) || e.Attribute("inferred") != "true" {
					t.Errorf("%s: the gap's reason is not %q: %v", resource, reason, e)
				}
				if inferred > 0 {
					t.Errorf("%s: %d inferred events come before the gap event", resource, inferred)
				}
				synced = 0
			case e.Type() == "dev.kubebridge.informer.synced":
				synced++
			case e.Attribute("inferred") == "true":
				inferred++
				if synced > 0 {
					t.Errorf("%s: an inferred event comes after the list was worked through: %v", resource, e)
				}
			}
		}
		if gaps != 1 || synced != 1 {
			t.Errorf("%s: %d gap events, and after them %d synced events; want one of each", resource, gaps, synced)
		}
	}
}

// What a killed API server had not sent yet is lost to everybody, since its history begins again: a
// gap. No object may stay wrong.
func apiServerIsKilled(t *testing.T, c *cluster) {
	l := newLab(t, c)
	l.populate(20)
	b := l.bridge("bridge", history+embedded)
	l.start(b)
	work, stopWork := context.WithCancel(l.ctx)
	defer stopWork()
	var g errgroup.Group
	for i := range 4 {
		g.Go(func() error { return churn(work, c, l.namespace, i) })
	}
	time.Sleep(300 * time.Millisecond)
	for range 2 {
		l.operate("restart-apiserver?signal=KILL")
		time.Sleep(500 * time.Millisecond)
	}
	stopWork()
	must(t, g.Wait())
	l.createConfigMap("after", "1")
	events := l.convergesTo(b)
	for _, problem := range check.Order(events) {
		t.Error(problem)
	}
	for _, r := range l.requestsSince(0) {
		if r.Verb == "list" && r.Query("limit") != "1" && r.Code == 200 {
			t.Errorf("the bridge listed, though the API server has WatchList: %s", r)
		}
	}
	l.verified(b, "the stream", jetStream(b))
	l.stop(b)
}

// What was sent to one sink is not settled as long as another is unreachable. A bridge that is
// killed then has forgotten it, and so has the API server: the deletes that a list infers are of
// earlier states than the stream has.
func crashedBeforeAGap(t *testing.T, c *cluster) {
	l := newLab(t, c)
	address, err := harness.FreeAddress()
	must(t, err)
	for _, name := range []string{"deleted", "replaced", "replaced-before", "gone-before"} {
		l.createConfigMap(name, "1")
	}
	b := l.bridge("bridge", "shutdownTimeout: 1s\n"+history+jetStreamAndKafka, with(map[string]string{"KAFKA": address}))
	must(t, b.Start())
	l.waitsOnlyFor(b, "kafka")
	eventually(t, "the snapshot is on disk", testPatience, func() []string { return unsettled(l.ctx, b) })

	l.updateConfigMap("deleted", "2")
	l.updateConfigMap("replaced", "2")
	l.deleteConfigMap("replaced-before")
	l.createConfigMap("replaced-before", "2")
	l.deleteConfigMap("gone-before")
	l.convergesTo(b)
	b.Kill()
	for _, name := range []string{"deleted", "replaced", "replaced-before"} {
		l.deleteConfigMap(name)
	}
	l.createConfigMap("replaced", "3")
	l.operate("compact")
	l.operate("restart-apiserver")

	for range 2 { // the second after another crash, which may come before the deletes are settled
		must(t, b.Start())
		l.waitsOnlyFor(b, "kafka")
		events := l.convergesTo(b)
		l.sortsBehind(events, "deleted", "replaced")
		l.verified(b, "the stream", jetStream(b))
		b.Kill()
	}
}

// sortsBehind checks that the inferred deletes of objects are of earlier versions than the stream
// has, or the test shows nothing, and that they sort behind these.
func (l *lab) sortsBehind(events []read.Event, names ...string) {
	l.t.Helper()
	for _, name := range names {
		newest := map[string]string{} // by uid
		shown := false
		for i := range events {
			e := &events[i]
			uid := e.Attribute("uid")
			switch {
			case e.Attribute("name") != name || !e.AboutObject():
			case e.Op() != "deleted":
				newest[uid] = e.Attribute("sequence")
			case e.Attribute("inferred") == "true":
				shown = shown || !strings.HasSuffix(newest[uid], e.Attribute("resourceversion"))
				if e.Attribute("sequence") <= newest[uid] {
					l.t.Errorf("%s: its delete has the sequence %s, its newest version %s", name, e.Attribute("sequence"), newest[uid])
				}
			}
		}
		if !shown {
			l.t.Errorf("%s: no delete of an earlier version was inferred", name)
		}
	}
}

// A restored etcd uses versions a second time, for other contents.
func etcdIsRestored(t *testing.T, c *cluster) {
	l := newLab(t, c)
	b := l.bridge("bridge", history+embedded)
	l.start(b)
	for _, name := range []string{"unchanged", "update-is-undone", "delete-is-undone", "replacement-is-undone"} {
		l.createConfigMap(name, "1")
	}
	l.convergesTo(b)
	l.operate("snapshot?name=restored")

	const lostUpdates = 20
	for i := range lostUpdates {
		l.updateConfigMap("update-is-undone", fmt.Sprint("undone ", i))
	}
	l.deleteConfigMap("delete-is-undone")
	l.deleteConfigMap("replacement-is-undone")
	l.createConfigMap("replacement-is-undone", "2")
	l.createConfigMap("create-is-undone", "1")
	l.convergesTo(b)

	l.operate("restore?name=restored")
	l.convergesTo(b)
	// By now the versions are below those of before; these changes get the same ones again.
	for i := range 3 * lostUpdates {
		l.updateConfigMap("update-is-undone", fmt.Sprint("again ", i))
	}
	l.deleteConfigMap("delete-is-undone")
	events := l.convergesTo(b)
	gapsComeFirst(t, events, "rewound", "configmaps")
	last := map[string]string{}
	for i := range events {
		if e := &events[i]; e.Attribute("name") == "update-is-undone" {
			last[string(e.Data())] = e.ID()
		}
	}
	if want := 1 + lostUpdates + 3*lostUpdates; len(last) < want {
		t.Errorf("%d different states of an object were published, want %d: some have been taken for repetitions", len(last), want)
	}
	l.verified(b, "the stream", jetStream(b))
	l.stop(b)
}

// convergesTo waits until a reader of all events has the state that the cluster has.
func (l *lab) convergesTo(b *harness.Bridge) []read.Event {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	now, err := truth.Watch(ctx, l.Admin(), l.history()...)
	must(l.t, err)
	defer now.Stop()
	stream := jetStream(b)
	var events []read.Event
	// After several failures in a row the bridge waits for up to half a minute before it asks
	// again.
	eventually(l.t, "the state of the cluster", 3*testPatience, func() []string {
		if events, err = stream.Refresh(l.ctx); err != nil {
			return []string{err.Error()}
		}
		return check.FinalState(truth.Snapshot(now.Changes()), events, check.Options{})
	})
	must(l.t, now.Err())
	return events
}
