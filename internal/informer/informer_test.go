package informer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/checkpoint"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var pods = testkit.Pods

// outbox is a Publisher that settles at once, or what it holds when it is asked to.
type outbox struct {
	mu       sync.Mutex
	cond     *sync.Cond
	hold     bool
	held     []*publisher.Item
	settling int // how many came and are not held, nor settled yet
	lines    []string
	raw      []event.Event
}

func newOutbox() *outbox {
	o := &outbox{}
	o.cond = sync.NewCond(&o.mu)
	return o
}

// Detach takes nothing back: the listeners of these tests end with their process.
func (o *outbox) Detach(context.Context, publisher.Settler) []*publisher.Item { return nil }

func (o *outbox) Add(_ context.Context, items []*publisher.Item) error {
	o.mu.Lock()
	for _, it := range items {
		e := *it.Message.Event
		o.raw = append(o.raw, e)
		o.lines = append(o.lines, describe(&e))
	}
	hold := o.hold
	if hold {
		o.held = append(o.held, items...)
	}
	o.cond.Broadcast()
	if !hold {
		o.settling += len(items)
	}
	o.mu.Unlock()
	if !hold {
		settle(items)
		o.mu.Lock()
		o.settling -= len(items)
		o.cond.Broadcast()
		o.mu.Unlock()
	}
	return nil
}

func (o *outbox) TryAdd(items []*publisher.Item) bool {
	return o.Add(context.Background(), items) == nil
}

// settle answers items one by one, as a publisher may.
func settle(items []*publisher.Item) {
	for _, it := range items {
		it.Settler.Settle([]*publisher.Item{it})
	}
}

// release settles what is held, in the order that shuffle gives it, and holds no more.
func (o *outbox) release() {
	o.mu.Lock()
	held := o.held
	o.held, o.hold = nil, false
	o.mu.Unlock()
	settle(held)
}

// wait waits until n events have come, and what is not held is settled. It gives the events, and
// forgets them.
func (o *outbox) wait(t *testing.T, n int) []string {
	t.Helper()
	late := false
	stop := time.AfterFunc(patience, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		late = true
		o.lines = append(o.lines, slices.Repeat([]string{"(nothing came)"}, n)...)
		o.cond.Broadcast()
	})
	defer stop.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for (len(o.lines) < n || o.settling > 0) && !late {
		o.cond.Wait()
	}
	lines := o.lines
	o.lines = nil
	return lines
}

// describe is an event in a line: its type, name, id and marks.
func describe(e *event.Event) string {
	words := []string{strings.TrimPrefix(e.Type, "dev.kubebridge."), e.Name, e.ID}
	if e.Initial {
		words = append(words, "initial")
	}
	if e.Inferred {
		words = append(words, "inferred")
	}
	return strings.Join(words, " ")
}

// rig is an informer over a database, between a FIFO that the test fills and outboxes.
type rig struct {
	t         *testing.T
	db        *store.DB
	fifo      queue
	indexer   *store.Indexer
	committer *checkpoint.Committer
	informer  *informer.Stages
	cancel    context.CancelFunc
	done      chan error
}

// queue is a FIFO whose producer waits after each delta.
type queue struct{ *deltafifo.FIFO }

func (q queue) flush(err error) error {
	q.Flush()
	return err
}

func (q queue) Add(ctx context.Context, obj *resource.Object) error {
	return q.flush(q.FIFO.Add(ctx, obj))
}

func (q queue) Update(ctx context.Context, obj *resource.Object) error {
	return q.flush(q.FIFO.Update(ctx, obj))
}

func (q queue) Delete(ctx context.Context, obj *resource.Object) error {
	return q.flush(q.FIFO.Delete(ctx, obj))
}

func (q queue) Unselected(ctx context.Context, obj *resource.Object, gone bool) error {
	return q.flush(q.FIFO.Unselected(ctx, obj, gone))
}

func (q queue) Bookmark(ctx context.Context, version resource.Version) error {
	return q.flush(q.FIFO.Bookmark(ctx, version))
}

type option func(*informer.StagesConfig)

func newRig(t *testing.T, db *store.DB, outboxes []*outbox, options ...option) *rig {
	t.Helper()
	r := &rig{t: t, db: db, done: make(chan error, 1)}
	var err error
	r.indexer, err = db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	testkit.OK(t, err)
	r.committer, err = checkpoint.New(checkpoint.Config{DB: db})
	testkit.OK(t, err)
	fifo, err := deltafifo.New(deltafifo.Config{Known: r.indexer.Listing(), MaxBytes: 256 << 10})
	testkit.OK(t, err)
	r.fifo = queue{fifo}
	maker, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods})
	testkit.OK(t, err)
	cfg := informer.StagesConfig{
		Name: "all/pods", Type: pods, FIFO: fifo, Indexer: r.indexer, Committer: r.committer,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for i, o := range outboxes {
		cfg.Listeners = append(cfg.Listeners, informer.ListenerConfig{
			Config: processor.Config{Name: fmt.Sprint("sink-", i), Publisher: o, Maker: maker},
		})
	}
	waiting(5 * time.Second)(&cfg)
	for _, o := range options {
		o(&cfg)
	}
	r.informer, err = informer.NewStages(cfg)
	testkit.OK(t, err)
	r.committer.Track(r.informer.Log())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() { _ = cfg.ChangeLog.Spooler.Run(ctx) }()
	go func() { r.done <- r.informer.Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

// waiting has changes wait that long for their listeners before they go to disk.
func waiting(after time.Duration) option {
	return func(c *informer.StagesConfig) { c.ChangeLog.Spooler = changelog.NewSpooler(after) }
}

// stop closes the FIFO and waits until everything is settled, then commits.
func (r *rig) stop() {
	r.t.Helper()
	r.fifo.Close()
	select {
	case err := <-r.done:
		testkit.OK(r.t, err)
	case <-time.After(patience):
		r.t.Fatal("the informer does not end")
	}
	testkit.OK(r.t, r.committer.Commit())
}

// crash ends the informer. What is not committed is lost.
func (r *rig) crash() {
	r.cancel()
	<-r.done
}

func memory(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(statedb.Options{})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	return db
}

// pod "a" has uid "ua", and "a#2" is another pod of that name with uid "ua2".
func pod(t *testing.T, name, version string) *resource.Object {
	t.Helper()
	name, again, _ := strings.Cut(name, "#")
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q}}`, name, "u"+name+again, version)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return obj
}

func (r *rig) add(name, version string) {
	testkit.OK(r.t, r.fifo.Add(r.t.Context(), pod(r.t, name, version)))
}

func (r *rig) update(name, version string) {
	testkit.OK(r.t, r.fifo.Update(r.t.Context(), pod(r.t, name, version)))
}

func (r *rig) delete(name, version string) {
	testkit.OK(r.t, r.fifo.Delete(r.t.Context(), pod(r.t, name, version)))
}

func (r *rig) replace(name, version string) {
	testkit.OK(r.t, r.fifo.Replace(r.t.Context(), pod(r.t, name, version)))
}

func (r *rig) bookmark(version resource.Version) {
	testkit.OK(r.t, r.fifo.Bookmark(r.t.Context(), version))
}

// resync asks for a Synced for the first listener, whatever changed meanwhile.
func (r *rig) resync(name string) {
	testkit.OK(r.t, r.fifo.Resync(r.t.Context(), resource.MakeKey("shop", name), 1, 0, math.MaxUint64))
}

// list replaces everything by "name@version" items.
func (r *rig) list(why resource.Relist, version resource.Version, items ...string) {
	testkit.OK(r.t, r.fifo.BeginReplace(r.t.Context(), why))
	for _, item := range items {
		name, v, _ := strings.Cut(item, "@")
		r.replace(name, v)
	}
	testkit.OK(r.t, r.fifo.EndReplace(r.t.Context(), version))
}

var (
	initial = resource.Relist{Kind: resource.RelistInitial}
	expired = resource.Relist{Reason: resource.ReasonExpired, From: "3", To: "20"}
)

// Changes are decided by the known state.
func TestDecidedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.list(initial, "10", "a@4", "b@7")
		testkit.Want(t, out.wait(t, 3),
			"resource.added a ua/4 initial",
			"resource.added b ub/7 initial",
			"informer.synced  all/pods/synced/10")
		r.update("a", "11")
		r.add("a", "12") // the server says added; the pod is known
		r.update("c", "13")
		r.delete("b", "14")
		testkit.Want(t, out.wait(t, 4),
			"resource.updated a ua/11",
			"resource.updated a ua/12",
			"resource.added c uc/13",
			"resource.deleted b ub/deleted")
		if !r.informer.HasSynced() {
			t.Error("it has not synced")
		}
		r.stop()
	})
}

// What is settled is not published again after a restart.
func TestRestartSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "10", "a@4")
		r.update("a", "11")
		r.add("b", "12")
		r.delete("b", "13")
		r.add("c", "14")
		out.wait(t, 6)
		r.stop()
		if got := r.informer.Log().Status().Watermark; got != "13" {
			t.Errorf("watermark %q, want 13: nothing after 14 was seen", got)
		}

		// The watch starts over from an older watermark than need be: everything comes again, and
		// one thing more.
		r = newRig(t, db, []*outbox{out})
		r.update("a", "11")
		r.add("b", "12")
		r.delete("b", "13")
		r.add("c", "14")
		r.update("c", "15")
		testkit.Want(t, out.wait(t, 1), "resource.updated c uc/15")
		r.stop()
	})
}

// A tombstone is gone when the watermark has passed it.
func TestTombstoneExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.add("a", "11")
		r.delete("a", "12")
		r.bookmark("20")
		out.wait(t, 2)
		r.stop()
		testkit.OK(t, r.committer.Commit())
		r = newRig(t, db, []*outbox{out})
		r.bookmark("30")
		r.stop()
		if _, found, err := r.indexer.Get("shop/a"); found || err != nil {
			t.Errorf("the tombstone is still there: %v, %v", found, err)
		}
	})
}

// A new UID is a delete, and then an add.
func TestNewUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.add("a", "11")
		r.update("a#2", "15") // the delete of the first was never seen
		testkit.Want(t, out.wait(t, 3),
			"resource.added a ua/11",
			"resource.deleted a ua/deleted inferred",
			"resource.added a ua2/15")
		r.delete("a#2", "16")
		r.add("a#3", "17")
		testkit.Want(t, out.wait(t, 2), "resource.deleted a ua2/deleted", "resource.added a ua3/17")
		r.stop()
	})
}

// After a gap event, a relist publishes only the differences.
func TestRelistDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "10", "same@1", "changed@2", "gone@3", "again@4", "newer@5")
		out.wait(t, 6)
		r.update("newer", "30") // after the version that the list will have
		out.wait(t, 1)
		r.list(expired, "20", "same@1", "changed@12", "again#2@13", "new@14", "newer@5")
		testkit.Want(t, out.wait(t, 7),
			"informer.gap  all/pods/gap/3/20 inferred",
			"resource.updated changed uchanged/12 inferred",
			"resource.deleted again uagain/deleted inferred",
			"resource.added again uagain2/13 inferred",
			"resource.added new unew/14 inferred",
			"resource.deleted gone ugone/deleted inferred",
			"informer.synced  all/pods/synced/20")
		last := out.raw[len(out.raw)-2]
		if !strings.Contains(string(last.Data), `"resourceVersion":"3"`) {
			t.Errorf("the inferred delete has %s, want the last known object", last.Data)
		}
		r.stop()
		if got := r.informer.Log().Status().Watermark; got != "20" {
			t.Errorf("watermark %q, want the list's 20", got)
		}
	})
}

// A list that starts again reports its gap once.
func TestRestartedListGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.list(initial, "10", "a@1", "b@2")
		out.wait(t, 3)
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
		r.replace("a", "11")
		r.list(expired, "21", "b@2") // by now a is gone
		testkit.Want(t, out.wait(t, 4),
			"informer.gap  all/pods/gap/3/20 inferred",
			"resource.updated a ua/11 inferred",
			"resource.deleted a ua/deleted inferred",
			"informer.synced  all/pods/synced/21")
		r.stop()
	})
}

// After a rewind the server gives out versions again, for other states: ids have the epoch from
// then on, or a broker that removes duplicates would take news for what it has.
func TestRewindEqualVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "100", "same@50", "newer@90", "after@95")
		out.wait(t, 4)
		r.delete("after", "99") // leaves a tombstone of the lost future
		out.wait(t, 1)
		rewound := resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "99", To: "60"}
		r.list(rewound, "60", "same@50", "newer@40", "after@55")
		testkit.Want(t, out.wait(t, 4),
			"informer.gap  all/pods/gap/99/60/epoch/1 inferred",
			"resource.updated newer unewer/40/epoch/1 inferred",
			"resource.added after uafter/55/epoch/1 inferred",
			"informer.synced  all/pods/synced/60/epoch/1")
		r.update("newer", "61")
		r.delete("after", "62")
		testkit.Want(t, out.wait(t, 2), "resource.updated newer unewer/61/epoch/1",
			"resource.deleted after uafter/deleted/epoch/1")
		r.stop()

		r = newRig(t, db, []*outbox{out})
		r.update("newer", "63")
		testkit.Want(t, out.wait(t, 1), "resource.updated newer unewer/63/epoch/1")
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "63", To: "61"}, "61", "same@50", "newer@61")
		testkit.Want(t, out.wait(t, 3),
			"informer.gap  all/pods/gap/63/61/epoch/2 inferred",
			"resource.updated newer unewer/61/epoch/2 inferred",
			"informer.synced  all/pods/synced/61/epoch/2")
		r.stop()
	})
}

// An object is settled when all listeners have settled it.
func TestSettledByAllListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		fast, slow := newOutbox(), newOutbox()
		slow.hold = true
		r := newRig(t, db, []*outbox{fast, slow})
		r.add("a", "11")
		r.bookmark("20")
		fast.wait(t, 1)
		slow.wait(t, 1)
		testkit.OK(t, r.committer.Commit())
		if s := r.informer.Log().Status(); s.Watermark != "" || s.Unsettled == 0 {
			t.Errorf("with one listener behind it stands at %+v", s)
		}
		slow.release()
		r.stop()
		if got := r.informer.Log().Status().Watermark; got != "20" {
			t.Errorf("watermark %q, want 20", got)
		}
	})
}

// What is not settled is published again after a restart, with the same id.
func TestRestartUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		out.hold = true
		r := newRig(t, db, []*outbox{out})
		r.add("a", "11")
		testkit.Want(t, out.wait(t, 1), "resource.added a ua/11")
		testkit.OK(t, r.committer.Commit()) // and then the process dies

		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after})
		r2.add("a", "11")
		testkit.Want(t, after.wait(t, 1), "resource.added a ua/11")
		r2.stop()
		out.release()
		r.stop()
	})
}

// A gap event waits until everything before it is settled.
func TestGapEventAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.list(initial, "10", "a@1")
		out.wait(t, 2)
		out.mu.Lock()
		out.hold = true
		out.mu.Unlock()
		r.update("a", "11")
		r.list(expired, "20", "a@12")
		testkit.Want(t, out.wait(t, 1), "resource.updated a ua/11")
		time.Sleep(50 * time.Millisecond) // if it did not wait, the gap would come now
		out.mu.Lock()
		if len(out.lines) > 0 {
			t.Errorf("%v came before the event in front was settled", out.lines)
		}
		out.mu.Unlock()
		out.release()
		testkit.Want(t, out.wait(t, 3), "informer.gap  all/pods/gap/3/20 inferred",
			"resource.updated a ua/12 inferred", "informer.synced  all/pods/synced/20")
		r.stop()
	})
}

// A resync reaches the listeners that asked for it, and no others.
func TestResyncListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, other := newOutbox(), newOutbox()
		r := newRig(t, memory(t), []*outbox{asked, other}, func(c *informer.StagesConfig) { c.Listeners[0].Resync = 20 * time.Millisecond })
		r.list(initial, "10", "a@1")
		got := asked.wait(t, 3)
		if !strings.HasPrefix(got[2], "resource.synced a ua/1/sync/") {
			t.Errorf("events %v, want a synced of a third", got)
		}
		testkit.Want(t, other.wait(t, 2), "resource.added a ua/1 initial", "informer.synced  all/pods/synced/10")
		r.update("a", "11")
		testkit.Want(t, other.wait(t, 1), "resource.updated a ua/11")
		r.stop()
	})
}

// The mode Always publishes known objects as synced.
func TestSnapshotAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "10", "a@1")
		out.wait(t, 2)
		r.stop()
		r = newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) { c.Resnapshot = true })
		r.list(initial, "20", "a@1", "b@12")
		got := out.wait(t, 4)
		if got[0] != "informer.gap  all/pods/gap/10/ inferred" || !strings.HasPrefix(got[1], "resource.synced a ua/1/sync/") || got[2] != "resource.added b ub/12 initial" {
			t.Errorf("events %v", got)
		}
		r.stop()
	})
}

// A full log holds the controller back.
func TestFullLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		out.hold = true
		r := newRig(t, memory(t), []*outbox{out}, func(c *informer.StagesConfig) { c.ChangeLog.MemoryBytes = 4096 })
		for i := range 2000 {
			r.add(fmt.Sprint("pod-", i), fmt.Sprint(100+i))
			if i%500 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		s := r.informer.Status()
		const batch = 256 * 1024 // a batch may pass the bound by its own size
		if s.Log.Bytes > 4096+batch || s.Log.Entries == 2000 {
			t.Errorf("the log holds %d changes of %d bytes; it may hold %d bytes and one batch", s.Log.Entries, s.Log.Bytes, 4096)
		}
		out.release()
		if got := len(out.wait(t, 2000)); got != 2000 {
			t.Errorf("%d events came, want 2000", got)
		}
		r.stop()
	})
}

// The informer ends at once when its context ends.
func TestContextEnd(t *testing.T) {
	out := newOutbox()
	out.hold = true
	db := memory(t)
	ix, err := db.Indexer(store.IndexerConfig{Name: "x", Type: pods})
	testkit.OK(t, err)
	c, err := checkpoint.New(checkpoint.Config{DB: db})
	testkit.OK(t, err)
	fifo, err := deltafifo.New(deltafifo.Config{Known: ix.Listing()})
	testkit.OK(t, err)
	maker, err := event.NewMaker(event.MakerConfig{Type: pods})
	testkit.OK(t, err)
	i, err := informer.NewStages(informer.StagesConfig{Name: "x", FIFO: fifo, Indexer: ix, Committer: c, Listeners: []informer.ListenerConfig{{Config: processor.Config{Publisher: out, Maker: maker}}}})
	testkit.OK(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	testkit.OK(t, fifo.Add(t.Context(), pod(t, "a", "1")))
	out.wait(t, 1)
	why := errors.New("out of time")
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("Run: %v, want %v", err, why)
	}
}
