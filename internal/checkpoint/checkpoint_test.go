package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/checkpoint"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

var pods = resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// bench is one informer's tracker over a database in memory.
type bench struct {
	t         *testing.T
	db        *store.DB
	indexer   *store.Indexer
	committer *checkpoint.Committer
	*checkpoint.Tracker
}

func newBench(t *testing.T) *bench {
	t.Helper()
	db, err := store.Open(store.Options{})
	ok(t, err)
	t.Cleanup(func() { ok(t, db.Close()) })
	b := &bench{t: t, db: db}
	b.indexer, err = db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	ok(t, err)
	b.committer, err = checkpoint.New(checkpoint.Config{DB: db})
	ok(t, err)
	b.Tracker, err = b.committer.Track(b.indexer)
	ok(t, err)
	return b
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// event appends the change of an event, which is the next one; settle settles it.
func (b *bench) event(at changelog.Position, name, version string) {
	b.t.Helper()
	b.item(at, name)
	b.Mark(changelog.Event, resource.Version(version))
}

// item appends a change that says nothing of versions.
func (b *bench) item(at changelog.Position, name string) {
	b.t.Helper()
	if got := b.Append(resource.Key(name)); got != at {
		b.t.Fatalf("its position is %d, want %d", got, at)
	}
}

func (b *bench) settle(at changelog.Position, name, version string) {
	obj := &resource.Object{Raw: []byte(`{}`), Meta: resource.Meta{Name: name, UID: "u", Version: resource.Version(version)}}
	b.Settle(at, resource.Key(name), store.Settled{Record: store.Record{UID: "u", Version: obj.Version}, Object: obj, Seq: uint64(at)})
}

func (b *bench) wantWatermark(version resource.Version) {
	b.t.Helper()
	ok(b.t, b.committer.Commit())
	pos, err := b.indexer.Position()
	ok(b.t, err)
	if pos.Version != version {
		b.t.Errorf("watermark %q, want %q", pos.Version, version)
	}
}

func TestTheWatermarkIsCommitted(t *testing.T) {
	b := newBench(t)
	for n := range changelog.Position(5) {
		b.event(n+1, fmt.Sprint("pod-", n+1), fmt.Sprint(10+n))
	}
	for _, at := range []changelog.Position{5, 3, 2} {
		b.settle(at, fmt.Sprint("pod-", at), fmt.Sprint(9+at))
	}
	b.wantWatermark("")
	b.settle(1, "pod-1", "10")
	b.wantWatermark("12")
	b.settle(4, "pod-4", "13")
	b.wantWatermark("13") // 14 is settled, and nothing later was seen
	b.Mark(changelog.Bookmark, "500")
	b.wantWatermark("500")
	b.item(6, "pod-6")
	b.Mark(changelog.ListEnd, "7")
	b.wantWatermark("500")
	b.settle(6, "pod-6", "6")
	b.wantWatermark("7")
}

func TestANoteIsWrittenWithWhatWasAppendedBeforeIt(t *testing.T) {
	b := newBench(t)
	var written []string
	note := func(what string) func(*store.Batch) {
		return func(*store.Batch) { written = append(written, what) }
	}
	b.event(1, "a", "10")
	b.Note(note("behind 1"))
	b.NoteNext(note("next"))
	b.event(2, "b", "11")
	ok(t, b.committer.Commit())
	b.settle(2, "b", "11")
	ok(t, b.committer.Commit())
	b.settle(1, "a", "10")
	ok(t, b.committer.Commit())
	if want := []string{"next", "behind 1"}; !slices.Equal(written, want) {
		t.Errorf("written: %q, want %q", written, want)
	}
}

func TestACommitHoldsTheLastVersionOfEachObject(t *testing.T) {
	b := newBench(t)
	b.event(1, "a", "10")
	b.event(2, "a", "11")
	b.settle(1, "a", "10")
	b.settle(2, "a", "11")
	b.wantWatermark("10")
	rec, found, err := b.indexer.Get("a")
	if err != nil || !found || rec.Version != "11" {
		t.Errorf("Get: %+v, %v, %v; want 11", rec, found, err)
	}
}

func TestRunCommitsWhatIsSettledAndOnceMoreAtTheEnd(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.committer.Run(ctx) }()
	b.event(1, "a", "10")
	b.settle(1, "a", "10")
	b.event(2, "a", "11")
	for deadline := time.Now().Add(10 * time.Second); ; {
		pos, err := b.indexer.Position()
		ok(t, err)
		if pos.Version == "10" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was committed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.settle(2, "a", "11")
	b.event(3, "a", "12")
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	pos, err := b.indexer.Position()
	if err != nil || pos.Version != "11" {
		t.Errorf("Position: %+v, %v; want 11", pos, err)
	}
}

// The rule, stated independently: the watermark may be v only if every event up to v is settled and one after v, or a mark at or
// after v, was begun.
func TestTheWatermarkNeverPassesWhatIsNotSettled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 200 {
		b := newBench(t)
		type ev struct {
			version int
			settled bool
		}
		events := map[changelog.Position]*ev{}
		version, at := 10, changelog.Position(0)
		var open []changelog.Position
		for range 60 {
			switch rng.IntN(4) {
			case 0, 1:
				version += rng.IntN(2)
				at++
				events[at] = &ev{version: version}
				open = append(open, at)
				b.event(at, fmt.Sprint("pod-", at), fmt.Sprint(version))
			case 2:
				if len(open) > 0 {
					i := rng.IntN(len(open))
					s := open[i]
					open = append(open[:i], open[i+1:]...)
					events[s].settled = true
					b.settle(s, fmt.Sprint("pod-", s), fmt.Sprint(events[s].version))
				}
			case 3:
				if rng.IntN(5) == 0 {
					version++
					b.Mark(changelog.Bookmark, resource.Version(fmt.Sprint(version)))
					version++
				}
			}
			ok(t, b.committer.Commit())
			pos, err := b.indexer.Position()
			ok(t, err)
			var watermark int
			_, _ = fmt.Sscan(string(pos.Version), &watermark)
			for s, e := range events {
				if e.version <= watermark && !e.settled {
					t.Fatalf("seed %d round %d: watermark %d passed event %d of version %d, which is not settled", seed, round, watermark, s, e.version)
				}
			}
			if watermark >= version {
				t.Fatalf("seed %d round %d: watermark %d with nothing seen after it", seed, round, watermark)
			}
		}
	}
}

// An informer that hears nothing more has no new watermark, and drops the rest of what the last one has passed all the same.
func TestTombstonesThatOneCommitLeavesAreDroppedByLaterOnes(t *testing.T) {
	b := newBench(t)
	const n = 12_000
	for i := range n {
		at := changelog.Position(i + 1)
		key := resource.Key(fmt.Sprintf("shop/p%06d", i))
		b.event(at, string(key), "1000")
		b.Settle(at, key, store.Settled{Record: store.Record{UID: fmt.Sprint("u", i), Version: "1000", Deleted: true}, Seq: uint64(at)})
	}
	b.Mark(changelog.Bookmark, "1001")
	left := func() int {
		ok(t, b.committer.Commit())
		count := 0
		for i := range n {
			_, found, err := b.indexer.Get(resource.Key(fmt.Sprintf("shop/p%06d", i)))
			ok(t, err)
			if found {
				count++
			}
		}
		return count
	}
	got := []int{left()}
	b.Mark(changelog.Bookmark, "1002")
	for range 2 {
		got = append(got, left())
	}
	if want := []int{n, n - 10_000, 0}; !slices.Equal(got, want) {
		t.Errorf("%d tombstones are left after each commit, want %d", got, want)
	}
}
