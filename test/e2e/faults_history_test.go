package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/faults"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// An API server that was restarted does not know what was before, so there is a gap, and a witness
// of its own for each of its lives.
func apiServerRestarts(f *faultRun) {
	b := f.faulted()
	f.start(b)
	f.change()
	var changes []truth.Change
	for _, signal := range []string{"TERM", "KILL"} {
		time.Sleep(*faultsTime / 2)
		f.operate("restart-apiserver?signal=" + signal)
		changes = append(changes, f.ledger.Changes()...)
		f.ledger.Stop() // it can't continue either
		f.ledger = f.witness(f.collections()...)
	}
	time.Sleep(*faultsTime / 2)
	f.calm()
	f.exist() // by now the witness has seen everything
	f.judge(b, append(changes, f.ledger.Changes()...))
	f.stop(b)
}

// etcd forgets the version of a list when half of it is read, and the API server keeps no copy of
// its own.
func compactionBetweenPages(f *faultRun) {
	f.each(twoPages, func(i int) { f.createConfigMap(fmt.Sprintf("unchanged-%d", i), "stays") })
	f.createConfigMap("changes", "0")
	p := f.front()
	byPages(p)
	var compacted sync.Once
	p.Wrap(-1, faults.Continues("configmaps"), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			compacted.Do(func() {
				f.updateConfigMap("changes", "1")
				f.operate("compact")
			})
			next.ServeHTTP(w, r)
		})
	})
	b := f.faulted()
	f.start(b)
	f.createConfigMap("after", "1")
	about := 0
	for _, e := range f.converges(b, func([]truth.Change) {}) {
		if e.AboutObject() {
			about++
		}
	}
	if about < twoPages+2 || about > twoPages+3 { // "changes" once or twice
		f.t.Errorf("%d events about %d objects", about, twoPages+2)
	}
	gone := 0
	for _, r := range f.requestsSince(0) {
		if r.Query("continue") != "" && r.Code == http.StatusGone {
			gone++
		}
	}
	if gone == 0 {
		f.t.Error("no page was gone: the test shows nothing")
	}
	f.stop(b)
}

// The bridge is killed; then everything changes, over and over under the same names, and is
// compacted. After it was started, the stream holds exactly the differences between what it knew
// and what there is.
func longAbsence(f *faultRun) {
	f.each(100, func(i int) { f.createConfigMap(fmt.Sprintf("unchanged-%d", i), "stays") })
	b := f.faulted()
	f.start(b)
	f.change()
	time.Sleep(*faultsTime / 3)
	f.calm()
	f.exact(b)
	eventually(f.t, "everything is on disk", testPatience, func() []string { return unsettled(f.ctx, b) })
	before := f.ledger.Changes()
	b.Kill()

	for range 2 {
		f.change()
		time.Sleep(*faultsTime / 3)
		f.calm()
		f.operate("compact")
	}
	for _, kind := range f.collections() { // each has to have changed, or there is no gap to be reported
		f.t.Logf("%s: %d changes", kind, countOf(f.ledger.Changes()[len(before):], kind))
	}
	after := f.seenAll(len(before))
	f.ledger.Stop()
	f.operate("restart-apiserver")

	f.start(b)
	inferred := truth.Inferred(before, after)
	f.matches("what differs", b, slices.Concat(before, inferred), check.Options{Informers: informerOf("app", f.collections()...)})
	gapsComeFirst(f.t, f.afterSnapshot(b), "expired", "pods", "deployments.apps", "configmaps")
	deleted := 0
	for i := range inferred {
		if inferred[i].Type == "DELETED" {
			deleted++
		}
	}
	f.t.Logf("%d changes while the bridge was down came to %d differences, %d of them deletes", len(after), len(inferred), deleted)
	if deleted == 0 || len(after) < 2*len(inferred) {
		f.t.Error("the test shows little")
	}
	f.stop(b)
}

func countOf(changes []truth.Change, c truth.Collection) (n int) {
	for i := range changes {
		if changes[i].Collection == c {
			n++
		}
	}
	return n
}

// seenAll are the changes from a place on, when the witness has seen all that there are.
func (f *faultRun) seenAll(from int) (changes []truth.Change) {
	f.t.Helper()
	exist := f.exist()
	eventually(f.t, "the witness", testPatience, func() (problems []string) {
		all := f.ledger.Changes()
		changes = all[from:]
		seen := map[string]bool{}
		for _, ch := range truth.Alive(all) {
			seen[ch.Metadata.UID+ch.Metadata.ResourceVersion] = true
		}
		for i := range exist {
			if m := &exist[i].Metadata; !seen[m.UID+m.ResourceVersion] {
				problems = append(problems, "it has not seen "+m.Name)
			}
		}
		if len(seen) > len(exist) {
			problems = append(problems, "it has not seen all deletes")
		}
		return problems
	})
	must(f.t, f.ledger.Err())
	return changes
}

// afterSnapshot are the events from the first gap on, when the lists that heal the gaps have ended,
// which is reported last.
func (f *faultRun) afterSnapshot(b *harness.Bridge) (found []read.Event) {
	f.t.Helper()
	stream := jetStream(b)
	eventually(f.t, "the ends of the lists", testPatience, func() []string {
		events, err := stream.Refresh(f.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		first := slices.IndexFunc(events, func(e read.Event) bool { return e.Type() == "dev.kubebridge.informer.gap" })
		if first < 0 {
			return []string{"no gap is reported"}
		}
		found = events[first:]
		ended := 0
		for i := range found {
			if found[i].Type() == "dev.kubebridge.informer.synced" {
				ended++
			}
		}
		if want := len(f.collections()); ended < want {
			return []string{fmt.Sprintf("%d lists of %d have ended", ended, want)}
		}
		return nil
	})
	return found
}

// beforeTheBackup lives a while, and has a snapshot taken of etcd; what comes after it will be
// undone.
func (f *faultRun) beforeTheBackup(b *harness.Bridge, name string) {
	f.t.Helper()
	f.start(b)
	for _, name := range []string{"unchanged", "update-is-undone", "delete-is-undone", "replacement-is-undone"} {
		f.createConfigMap(name, "1")
	}
	f.change()
	time.Sleep(*faultsTime / 3)
	f.operate("snapshot?name=" + name)
	time.Sleep(*faultsTime / 3)
	f.calm()
	f.updateConfigMap("update-is-undone", "2")
	f.deleteConfigMap("delete-is-undone")
	f.deleteConfigMap("replacement-is-undone")
	f.createConfigMap("replacement-is-undone", "2")
	f.createConfigMap("create-is-undone", "1")
	f.exact(b)
	eventually(f.t, "everything is on disk", testPatience, func() []string { return unsettled(f.ctx, b) })
}

func etcdIsRestoredMeanwhile(f *faultRun) {
	b := f.faulted()
	f.beforeTheBackup(b, "meanwhile")
	f.stop(b)
	f.ledger.Stop()
	f.operate("restore?name=meanwhile")
	f.start(b)
	f.restoredStreamIsRight(b)
	f.stop(b)
}

func etcdIsRestoredUnderLoad(f *faultRun) {
	b := f.faulted()
	f.beforeTheBackup(b, "underload")
	f.ledger.Stop()
	f.change()
	time.Sleep(*faultsTime / 3)
	restored := make(chan error, 1)
	go func() {
		_, err := f.Operate(f.ctx, "restore?name=underload")
		restored <- err
	}()
	// Until the API server is unavailable. A history that has overtaken the versions of before when
	// a bridge asks can't be distinguished from theirs.
	time.Sleep(time.Second)
	f.calm()
	must(f.t, <-restored)
	f.restoredStreamIsRight(b)
	f.stop(b)
}

// restoredStreamIsRight checks that the stream ends in the state of the cluster, that it reports
// the rewind once for each resource, and that the reader of the events after that is right by them
// alone.
func (f *faultRun) restoredStreamIsRight(b *harness.Bridge) {
	f.t.Helper()
	events := f.converges(b, func([]truth.Change) {})
	gapsComeFirst(f.t, f.afterSnapshot(b), "rewound", "pods", "deployments.apps", "configmaps")
	last := map[string]string{}
	ids := map[string]bool{}
	for i := range events {
		e := &events[i]
		if e.GroupResource() == "configmaps" && e.AboutObject() {
			last[e.Attribute("name")] = e.Op()
		}
		if ids[e.ID()] {
			f.t.Errorf("id %s comes twice", e.ID())
		}
		ids[e.ID()] = true
	}
	for name, want := range map[string]string{"unchanged": "added", "update-is-undone": "updated", "delete-is-undone": "added", "replacement-is-undone": "added", "create-is-undone": "deleted"} {
		if last[name] != want {
			f.t.Errorf("the last event of %s is %q, want %q", name, last[name], want)
		}
	}
}

// Bridges that were started while there is no API server, and while it comes back, wait until it
// is.
func apiServerStarts(f *faultRun) {
	f.createConfigMap("exists", "1")
	b := f.faulted()
	f.operate("stop-apiserver?signal=KILL")
	began := time.Now()
	must(f.t, b.Start())
	f.saysNotReady(b, "API server", "nothing answers at")
	starting := make(chan error, 1)
	go func() {
		_, err := f.Operate(f.ctx, "start-apiserver")
		starting <- err
	}()
	// The bridge asks at moments of its own; others are started at the worst ones. More
	// of them would keep a slow API server from starting.
	const most = 6
	var others []*harness.Bridge
	for i := range most {
		other := f.bridge(fmt.Sprint("bridge-", i), `informers: [{name: app, resources: [pods, `+widgetsName+`], namespaces: ["${NS}"]}]`+embedded)
		must(f.t, other.Start())
		others = append(others, other)
		time.Sleep(500 * time.Millisecond)
		if len(starting) > 0 {
			break
		}
	}
	must(f.t, <-starting)
	for _, b := range append(others, b) {
		eventually(f.t, "a bridge is ready", startTime, func() []string {
			if !b.Running() {
				f.t.Fatalf("the bridge ended; it wrote:\n%s", b.Log.Tail(10))
			}
			if r, err := b.Readiness(f.ctx); err != nil || !r.Ready {
				return []string{fmt.Sprint(r, err)}
			}
			return nil
		})
	}
	f.t.Logf("%d bridges were ready %v after the first was started without an API server", len(others)+1, time.Since(began).Round(100*time.Millisecond))
	f.converges(b, func([]truth.Change) {})
	for _, b := range append(others, b) {
		f.stop(b)
	}
}
