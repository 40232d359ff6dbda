package processor_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// hands are a Publisher that keeps what it is given until the test settles it.
type hands struct {
	mu      sync.Mutex
	refuses bool // what is tried
	held    []*publisher.Item
	sent    []string // type and id of every event
}

func (h *hands) Add(_ context.Context, items []*publisher.Item) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range items {
		h.held = append(h.held, it)
		h.sent = append(h.sent, line(it))
	}
	return nil
}

func (h *hands) TryAdd(items []*publisher.Item) bool {
	h.mu.Lock()
	refuses := h.refuses
	h.mu.Unlock()
	return !refuses && h.Add(context.Background(), items) == nil
}

func (h *hands) Detach(context.Context, publisher.Settler) []*publisher.Item { return nil }

// holds are the lines of what is held.
func (h *hands) holds() (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range h.held {
		lines = append(lines, line(it))
	}
	return lines
}

// settle settles the n-th of what is held.
func (h *hands) settle(n int) {
	h.mu.Lock()
	it := h.held[n]
	h.held = slices.Delete(h.held, n, n+1)
	h.mu.Unlock()
	it.Settler.Settle([]*publisher.Item{it})
}

func line(it *publisher.Item) string {
	e := it.Message.Event
	return strings.TrimPrefix(e.Type, "dev.kubebridge.") + " " + e.ID
}

// bench is a listener of a log that the test appends to.
type bench struct {
	*hands
	t        *testing.T
	db       *store.DB
	log      *changelog.Log
	listener *processor.Listener
	version  int
	ended    chan error
}

func newBench(t *testing.T, cfg processor.Config) *bench {
	t.Helper()
	b := &bench{hands: &hands{}, t: t, ended: make(chan error, 1)}
	var err error
	b.db, err = store.Open(statedb.Options{})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, b.db.Close()) })
	indexer, err := b.db.Indexer(store.IndexerConfig{Name: "all/pods", Type: testkit.Pods})
	testkit.OK(t, err)
	logger := slog.New(slog.DiscardHandler)
	b.log, err = changelog.Open(changelog.Config{
		Indexer: indexer, Type: testkit.Pods, Committer: b, Listeners: []string{"one"}, Log: logger,
	})
	testkit.OK(t, err)
	cfg.Name, cfg.Publisher = "one", b.hands
	cfg.Maker, err = event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: testkit.Pods})
	testkit.OK(t, err)
	env := processor.Env{Log: b.log, Indexer: indexer, Type: testkit.Pods, Logger: logger}
	b.listener, err = processor.New(cfg, env, 0)
	testkit.OK(t, err)
	testkit.OK(t, b.listener.Prepare())
	b.listener.Start(t.Context(), func(err error) { b.ended <- err })
	synctest.Wait()
	return b
}

func (b *bench) Changed() {}
func (b *bench) Wake()    {}

// Commit makes durable what is settled.
func (b *bench) Commit() error {
	checkpoint := b.log.Checkpoint()
	batch := b.db.NewBatch()
	checkpoint.Write(batch)
	err := batch.Commit()
	b.log.Committed(checkpoint, err)
	return err
}

// append puts an entry of the next version into the log, as a controller does.
func (b *bench) append(e *changelog.Entry) {
	b.version++
	e.Version = resource.Version(fmt.Sprint(b.version))
	e.Observed, e.For = time.Now(), b.log.ListenersOf(nil)
	entries := []*changelog.Entry{e}
	b.log.Rank(entries, changelog.Mark{Kind: changelog.Event, Version: e.Version})
	b.log.Append(entries)
	b.log.Offer()
}

// change appends a change of a pod.
func (b *bench) change(op event.Op, name, uid string, size int) {
	raw := fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"},"spec":%q}`,
		name, uid, b.version+1, strings.Repeat("x", size))
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: testkit.Pods})
	testkit.OK(b.t, err)
	b.append(&changelog.Entry{
		Change: event.Change{Op: op, Key: resource.Key(name), Object: obj, UID: uid},
	})
}

// end closes the log, settles everything, and waits until the listener has ended.
func (b *bench) end() {
	b.t.Helper()
	last := resource.Version(fmt.Sprint(b.version))
	b.log.Rank(nil, changelog.Mark{Kind: changelog.Bookmark, Version: last})
	b.log.Close()
	for synctest.Wait(); len(b.holds()) > 0; synctest.Wait() {
		b.settle(0)
	}
	select {
	case err := <-b.ended:
		testkit.OK(b.t, err)
	default:
		b.t.Fatal("the listener does not end")
	}
	testkit.OK(b.t, b.Commit())
	if got := b.log.Status().Watermark; got != last {
		b.t.Errorf("watermark %s when everything is settled, want %s", got, last)
	}
}

// The event that ends a list, and no other one, can say which objects exist: a sink that keeps the
// present state compares all that it holds.
func TestExists(t *testing.T) {
	for _, latest := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, processor.Config{Latest: latest})
			passed := func(e string, exists bool) {
				t.Helper()
				synctest.Wait()
				if got := b.held[0].Message.Exists != nil; line(b.held[0]) != e || got != exists {
					t.Errorf("latest %v: %s has Exists: %v", latest, line(b.held[0]), got)
				}
				b.settle(0)
				synctest.Wait()
			}
			b.append(&changelog.Entry{Kind: changelog.OfListEnd})
			passed("informer.synced all/pods/synced/1", true)
			for _, id := range []string{"a/2", "a/3"} {
				b.change(event.Added, "a", "a", 0)
				passed("resource.added "+id, false)
			}
			b.end()
		})
	}
}

// A listener with nothing in flight keeps no memory of what was.
func TestIdleListener(t *testing.T) {
	for _, latest := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, processor.Config{Latest: latest})
			b.append(&changelog.Entry{Kind: changelog.OfListEnd})
			b.change(event.Added, "a", "a", 0)
			var passed []weak.Pointer[publisher.Item]
			for synctest.Wait(); len(b.held) > 0; synctest.Wait() {
				passed = append(passed, weak.Make(b.held[0]))
				b.settle(0)
			}
			runtime.GC()
			for n, it := range passed {
				if it.Value() != nil {
					t.Errorf("latest %v: event %d of %d is still held", latest, n, len(passed))
				}
			}
			b.end()
		})
	}
}

// TestListener has any changes, in any order of reads and answers, reach the publisher.
func TestListener(t *testing.T) {
	const seeds, actions = 50, 40
	for _, latest := range []bool{false, true} {
		t.Run(map[bool]string{false: "history", true: "latest"}[latest], func(t *testing.T) {
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) { play(t, seed, actions, latest) })
				if t.Failed() {
					t.Fatalf("with seed %d", seed)
				}
			}
		})
	}
}

// play does what a seed says, and compares what was sent with what was appended.
func play(t *testing.T, seed uint64, actions int, latest bool) {
	rng := rand.New(rand.NewPCG(seed, 0))
	window := 1 + rng.IntN(4)
	b := newBench(t, processor.Config{Window: window, Latest: latest, Ahead: 1 + rng.IntN(6)})
	var all []string // that was appended
	needed := map[string]bool{}
	newest := map[string]string{} // of each object since the last end of a list
	alive := map[string]string{}  // the ids of objects, by name
	for range actions {
		switch action := rng.IntN(7); action {
		case 0:
			b.refuses = rng.IntN(2) == 0
		case 1:
			b.append(&changelog.Entry{Kind: changelog.OfListEnd})
			said := fmt.Sprint("informer.synced all/pods/synced/", b.version)
			all, needed[said] = append(all, said), true
			clear(newest)
		case 2, 3, 4:
			name, op := string(rune('a'+rng.IntN(3))), event.Updated
			switch {
			case alive[name] == "":
				op, alive[name] = event.Added, fmt.Sprint(name, b.version+1)
			case rng.IntN(3) == 0:
				op = event.Deleted
			}
			uid := alive[name]
			b.change(op, name, uid, rng.IntN(2)*rng.IntN(100<<10))
			said := fmt.Sprintf("resource.%s %s/%d", op, uid, b.version)
			if op == event.Deleted {
				said, alive[name] = fmt.Sprintf("resource.deleted %s/deleted", uid), ""
			}
			all, needed[said] = append(all, said), true
			if before := newest[name]; !strings.Contains(before, "deleted") {
				delete(needed, before)
			}
			newest[name] = said
		default:
			b.settleOne(rng)
		}
		synctest.Wait()
		checkHeld(t, b.holds(), window, latest)
	}
	b.end()
	if latest {
		checkLatest(t, b.sent, all, needed)
	} else {
		testkit.Want(t, b.sent, all...)
	}
}

// object is the name of the one that a line is about, "" for all.
func object(line string) string {
	_, id, _ := strings.Cut(line, " ")
	if strings.HasPrefix(id, "all/") {
		return ""
	}
	return id[:1]
}

// settleOne settles anything that is held, in order per object.
func (h *hands) settleOne(rng *rand.Rand) {
	lines := h.holds()
	if len(lines) == 0 {
		return
	}
	any := object(lines[rng.IntN(len(lines))])
	h.settle(slices.IndexFunc(lines, func(line string) bool { return object(line) == any }))
}

func checkHeld(t *testing.T, held []string, window int, latest bool) {
	t.Helper()
	if len(held) > window {
		t.Fatalf("%d are with the publisher, at most %d may be", len(held), window)
	}
	seen := map[string]bool{}
	for _, line := range held {
		of := object(line)
		if of == "" && len(held) > 1 {
			t.Fatalf("an event about all objects is with the publisher together with others: %q", held)
		}
		if latest && seen[of] {
			t.Fatalf("two events of %s are with the publisher: %q", of, held)
		}
		seen[of] = true
	}
}

// checkLatest has what was sent be some of all, in order per object and to the events about all
// objects, with everything that is needed; and each object begin with its Added or its end.
func checkLatest(t *testing.T, sent, all []string, needed map[string]bool) {
	t.Helper()
	place := map[string]int{} // by id: the first change of an object is sent as its Added
	for n, line := range all {
		_, id, _ := strings.Cut(line, " ")
		place[id] = n
	}
	missing := map[string]bool{}
	for line := range needed {
		_, id, _ := strings.Cut(line, " ")
		missing[id] = true
	}
	alive, last, barrier := map[string]bool{}, map[string]int{}, -1
	for _, line := range sent {
		kind, id, _ := strings.Cut(line, " ")
		of, at := object(line), place[id]
		if _, known := place[id]; !known || at <= barrier || at < last[of] {
			t.Errorf("%s comes twice, too late, or from nowhere", line)
		}
		if last[of] = at + 1; of == "" {
			barrier = at
		}
		if kind == "resource.updated" && !alive[of] {
			t.Errorf("%s comes before %s was added", line, of)
		}
		alive[of] = kind != "resource.deleted"
		delete(missing, id)
	}
	if len(missing) > 0 {
		t.Errorf("never sent: %v", slices.Sorted(maps.Keys(missing)))
	}
}
