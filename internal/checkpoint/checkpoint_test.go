package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

// begin begins a delta at a place, which is the next one.
func (b *bench) begin(seq uint64, kind checkpoint.Kind, version string) {
	b.t.Helper()
	if got := b.Begin(kind, resource.Version(version)); got != seq {
		b.t.Fatalf("its place is %d, want %d", got, seq)
	}
}

// event begins an event of one change that is on its way; settle settles it.
func (b *bench) event(seq uint64, version string) {
	b.t.Helper()
	b.begin(seq, checkpoint.Event, version)
	b.Hold(seq, 1)
	b.Done(seq, seq)
}

func (b *bench) settle(seq uint64, name, version string) {
	obj := &resource.Object{Raw: []byte(`{}`), Meta: resource.Meta{Name: name, UID: "u", Version: resource.Version(version)}}
	b.Settle(seq, resource.Key(name), store.Settled{Record: store.Record{UID: "u", Version: obj.Version}, Object: obj, Seq: seq})
}

// mark begins and ends a bookmark.
func (b *bench) mark(seq uint64, version string) {
	b.t.Helper()
	b.begin(seq, checkpoint.Mark, version)
	b.Done(seq, seq)
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

func TestAVersionIsPassedOnlyWhenALaterOneWasSeen(t *testing.T) {
	b := newBench(t)
	b.event(1, "10")
	b.settle(1, "a", "10")
	b.wantWatermark("") // another event of version 10 may follow
	b.event(2, "10")
	b.event(3, "10")
	b.settle(3, "c", "10")
	b.wantWatermark("")
	b.settle(2, "b", "10")
	b.wantWatermark("")
	b.event(4, "11")
	b.wantWatermark("10") // 11 was seen, so 10 is complete; 11 itself is not settled
}

func TestTheWatermarkWaitsForTheSlowest(t *testing.T) {
	b := newBench(t)
	for seq := range uint64(5) {
		b.event(seq+1, fmt.Sprint(10+seq))
	}
	for _, seq := range []uint64{5, 3, 2} {
		b.settle(seq, fmt.Sprint("pod-", seq), fmt.Sprint(9+seq))
	}
	b.wantWatermark("")
	b.settle(1, "pod-1", "10")
	b.wantWatermark("12")
	b.settle(4, "pod-4", "13")
	b.wantWatermark("13") // 14 is settled, and nothing later was seen
}

func TestABookmarkMovesTheWatermarkOfAnIdleInformer(t *testing.T) {
	b := newBench(t)
	b.event(1, "10")
	b.settle(1, "a", "10")
	b.mark(2, "500")
	b.wantWatermark("500")
	b.event(3, "501")
	b.mark(4, "502")
	b.wantWatermark("500") // 501 is on its way
	b.settle(3, "a", "501")
	b.wantWatermark("502")
}

func TestItemsOfAListDoNotMoveTheWatermarkAndItsEndDoes(t *testing.T) {
	b := newBench(t)
	for seq, version := range []string{"7", "3", "9"} {
		b.begin(uint64(seq+1), checkpoint.Aside, "")
		b.Hold(uint64(seq+1), 1)
		b.Done(uint64(seq+1), uint64(seq+1))
		b.settle(uint64(seq+1), fmt.Sprint("pod-", seq), version)
	}
	b.wantWatermark("")
	b.begin(4, checkpoint.Listed, "20")
	b.Done(4, 4)
	b.wantWatermark("20")
}

func TestTheWatermarkGoesBackOnlyWithAList(t *testing.T) {
	b := newBench(t)
	b.begin(1, checkpoint.Listed, "20")
	b.Done(1, 1)
	b.event(2, "18") // a delete from before the list's end
	b.settle(2, "a", "18")
	b.mark(3, "19")
	b.wantWatermark("20")
	b.event(4, "21")
	b.settle(4, "b", "21")
	b.mark(5, "22")
	b.wantWatermark("22")
	b.begin(6, checkpoint.Listed, "7")
	b.Done(6, 6)
	b.wantWatermark("7")
}

func TestPlacesLetGoTogether(t *testing.T) {
	b := newBench(t)
	for seq := range uint64(4) {
		b.begin(seq+1, checkpoint.Event, fmt.Sprint(10+seq))
	}
	b.Hold(2, 1) // as while the controller works on a turn: nothing moves before it is done with all of it
	b.wantWatermark("")
	b.Done(1, 4)
	b.wantWatermark("10")
	b.settle(2, "b", "11")
	b.wantWatermark("12")
}

func TestACommitHoldsTheLastVersionOfEachObject(t *testing.T) {
	b := newBench(t)
	b.event(1, "10")
	b.event(2, "11")
	b.settle(1, "a", "10")
	b.settle(2, "a", "11")
	b.wantWatermark("10")
	rec, found, err := b.indexer.Get("a")
	if err != nil || !found || rec.Version != "11" {
		t.Errorf("Get: %+v, %v, %v; want 11", rec, found, err)
	}
}

func TestSettlingWhatWasNeverHeldIsABug(t *testing.T) {
	b := newBench(t)
	b.event(1, "10")
	b.settle(1, "a", "10")
	defer func() {
		if recover() == nil {
			t.Error("settling twice went unnoticed")
		}
	}()
	b.settle(1, "a", "10")
}

func TestRunCommitsWhatIsSettledAndOnceMoreAtTheEnd(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.committer.Run(ctx) }()
	b.event(1, "10")
	b.settle(1, "a", "10")
	b.event(2, "11")
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
	b.event(3, "12")
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
		events := map[uint64]*ev{}
		version, seq := 10, uint64(0)
		var open []uint64
		for range 60 {
			switch rng.IntN(4) {
			case 0, 1:
				version += rng.IntN(2)
				seq++
				events[seq] = &ev{version: version}
				open = append(open, seq)
				b.event(seq, fmt.Sprint(version))
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
					seq++
					version++
					b.mark(seq, fmt.Sprint(version))
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
		seq := uint64(i + 1)
		b.event(seq, "1000")
		key := resource.Key(fmt.Sprintf("shop/p%06d", i))
		b.Settle(seq, key, store.Settled{Record: store.Record{UID: fmt.Sprint("u", i), Version: "1000", Deleted: true}, Seq: seq})
	}
	b.begin(n+1, checkpoint.Mark, "1001")
	b.Done(n+1, n+1)
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
	b.begin(n+2, checkpoint.Mark, "1002")
	b.Done(n+2, n+2)
	for range 2 {
		got = append(got, left())
	}
	if want := []int{n, n - 10_000, 0}; !slices.Equal(got, want) {
		t.Errorf("%d tombstones are left after each commit, want %d", got, want)
	}
}
