package deltafifo_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
)

// known is a KnownObjects of a fixed set.
type known struct {
	missing []resource.Key
	err     error
	asked   int
}

func (k *known) Missing(resource.Version, resource.Relist) iter.Seq2[resource.Key, error] {
	return func(yield func(resource.Key, error) bool) {
		k.asked++
		for _, m := range k.missing {
			if !yield(m, nil) {
				return
			}
		}
		if k.err != nil {
			yield("", k.err)
		}
	}
}

func newFIFO(t *testing.T, cfg deltafifo.Config) *deltafifo.FIFO {
	t.Helper()
	if cfg.Known == nil {
		cfg.Known = &known{}
	}
	f, err := deltafifo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// object makes "name" of a uid made of the name, or of what follows a "#".
func object(name, version string) *resource.Object {
	name, uid, _ := strings.Cut(name, "#")
	return &resource.Object{
		Raw:  []byte(`{"metadata":{"name":"` + name + `"}}`),
		Meta: resource.Meta{Name: name, UID: "uid-" + name + uid, Version: resource.Version(version)},
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// popAll pops everything that waits, as "key: Type version…", one line per Deltas.
func popAll(t *testing.T, f *deltafifo.FIFO) []string {
	t.Helper()
	var batch deltafifo.Batch
	var lines []string
	for f.Stats().Entries > 0 {
		ok(t, f.Pop(t.Context(), &batch, 100))
		for _, deltas := range batch.Deltas {
			lines = append(lines, line(deltas))
		}
	}
	ok(t, popNothing(t, f, &batch))
	return lines
}

// popNothing calls Pop on an empty FIFO, which says that the batch before was applied.
func popNothing(t *testing.T, f *deltafifo.FIFO, batch *deltafifo.Batch) error {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Pop(ctx, batch, 1); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Pop of an empty FIFO: %w", err)
	}
	return nil
}

func line(deltas deltafifo.Deltas) string {
	var words []string
	for _, d := range deltas.Items {
		version := d.Version
		if d.Object != nil {
			version = d.Object.Version
		}
		word := fmt.Sprintf("%s %s", d.Type, version)
		if d.FinalStateUnknown {
			word += " unknown"
		}
		words = append(words, strings.TrimSpace(word))
	}
	return string(deltas.Key) + ": " + strings.Join(words, ", ")
}

func want(t *testing.T, got []string, lines ...string) {
	t.Helper()
	if !slices.Equal(got, lines) {
		t.Errorf("popped\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

// TestDeltaFIFO_basic, _addUpdate, _enqueueingNoLister of client-go.
func TestDeltasOfOneObjectComeTogetherInOrderOfTheFirst(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	ok(t, f.Add(ctx, object("a", "1")))
	ok(t, f.Add(ctx, object("b", "2")))
	ok(t, f.Update(ctx, object("a", "3")))
	ok(t, f.Delete(ctx, object("a", "4")))
	ok(t, f.Update(ctx, object("b", "5")))
	want(t, popAll(t, f), "a: Added 1, Updated 3, Deleted 4", "b: Added 2, Updated 5")
}

// TestDeltaFIFO_DeleteExistingNonPropagated and the dedup of two adjacent deletes of client-go.
func TestTwoDeletesInARowAreOne(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ok(t, f.Delete(t.Context(), object("a", "1")))
	ok(t, f.Delete(t.Context(), object("a", "2")))
	ok(t, f.Delete(t.Context(), object("a#2", "3")))
	var batch deltafifo.Batch
	ok(t, f.Pop(t.Context(), &batch, 10))
	want(t, []string{line(batch.Deltas[0])}, "a: Deleted 2, Deleted 3")
	if got := batch.Deltas[0].Collapsed; !slices.Equal(got, []uint64{1}) {
		t.Errorf("collapsed %v, want the first", got)
	}
}

func TestEveryDeltaHasItsPlaceInTheStream(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	ok(t, f.Add(ctx, object("a", "1")))
	ok(t, f.Add(ctx, object("b", "2")))
	ok(t, f.Update(ctx, object("a", "3")))
	ok(t, f.Bookmark(ctx, "9"))
	var batch deltafifo.Batch
	ok(t, f.Pop(ctx, &batch, 10))
	var seqs []uint64
	for _, deltas := range batch.Deltas {
		for _, d := range deltas.Items {
			seqs = append(seqs, d.Seq)
		}
	}
	if !slices.Equal(seqs, []uint64{1, 3, 2, 4}) {
		t.Errorf("places %v, want a's 1 and 3, b's 2, the bookmark's 4", seqs)
	}
}

// TestDeltaFIFO_ReplaceMakesDeletions, _ReplaceDeltaType, _ReplaceMakesDeletionsForObjectsOnlyInQueue of client-go. Objects only in
// the queue are applied before the end of the list asks what is missing, so they are among the known.
func TestAListsEndDeletesWhatIsKnownAndWasNotListed(t *testing.T) {
	k := &known{missing: []resource.Key{"gone", "lost"}}
	f := newFIFO(t, deltafifo.Config{Known: k})
	ctx := t.Context()
	ok(t, f.Update(ctx, object("a", "5")))
	ok(t, f.BeginReplace(ctx, resource.Relist{Reason: "expired"}))
	ok(t, f.Replace(ctx, object("a", "7")))
	ok(t, f.Replace(ctx, object("b", "8")))
	ok(t, f.EndReplace(ctx, "9"))
	ok(t, f.Update(ctx, object("b", "10")))

	var batch deltafifo.Batch
	pop := func(lines ...string) {
		t.Helper()
		ok(t, f.Pop(ctx, &batch, 10))
		var got []string
		for _, deltas := range batch.Deltas {
			got = append(got, line(deltas))
		}
		want(t, got, lines...)
	}
	pop("a: Updated 5") // not with the list's a: a gap is told in between
	pop(": ReplaceBegin")
	pop("a: Replaced 7", "b: Replaced 8")
	if k.asked != 0 {
		t.Error("the known objects were asked before the list was applied")
	}
	pop("gone: Deleted 9 unknown", "lost: Deleted 9 unknown", ": ReplaceEnd 9")
	for _, deltas := range batch.Deltas {
		if deltas.Items[0].Seq != 5 {
			t.Errorf("%s has place %d, want that of the list's end, 5", line(deltas), deltas.Items[0].Seq)
		}
	}
	pop("b: Updated 10")
}

func TestManyInferredDeletesComeInBatches(t *testing.T) {
	k := &known{}
	for i := range 250 {
		k.missing = append(k.missing, resource.Key(fmt.Sprint(i)))
	}
	f := newFIFO(t, deltafifo.Config{Known: k})
	ok(t, f.BeginReplace(t.Context(), resource.Relist{}))
	ok(t, f.EndReplace(t.Context(), "9"))
	var batch deltafifo.Batch
	ok(t, f.Pop(t.Context(), &batch, 100)) // the begin
	total := 0
	for range 3 {
		ok(t, f.Pop(t.Context(), &batch, 100))
		total += len(batch.Deltas)
	}
	if total != 251 || batch.Deltas[50].Items[0].Type != deltafifo.ReplaceEnd {
		t.Errorf("%d deltas in three batches, want 250 deletes and the end last", total)
	}
}

func TestAListWithSomethingOfWhichNobodyKnowsWhatItIsSpares(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	sparing := func(list func()) (spares bool) {
		t.Helper()
		ok(t, f.BeginReplace(ctx, resource.Relist{Reason: resource.ReasonExpired}))
		list()
		ok(t, f.EndReplace(ctx, "9"))
		var batch deltafifo.Batch
		for {
			ok(t, f.Pop(ctx, &batch, 10))
			for _, d := range batch.Deltas {
				if d.Items[0].Type == deltafifo.ReplaceBegin && d.Items[0].Relist.Sparing {
					t.Error("it was said before it was known")
				}
				if d.Items[0].Type == deltafifo.ReplaceEnd {
					return d.Items[0].Relist.Sparing
				}
			}
		}
	}
	spare := func(of resource.Identity) func() { return func() { ok(t, f.Spare(ctx, of)) } }
	if sparing(spare(resource.Identity{Key: "shop/a"})) {
		t.Error("of a known key: everything else can be gone")
	}
	if !sparing(spare(resource.Identity{})) {
		t.Error("of an unknown key: it does not say so")
	}
	if sparing(func() {}) {
		t.Error("the next list: it still says so")
	}
}

func TestAFailureToFindWhatIsMissingIsNoEmptyAnswer(t *testing.T) {
	broken := errors.New("disk on fire")
	f := newFIFO(t, deltafifo.Config{Known: &known{err: broken}})
	ok(t, f.EndReplace(t.Context(), "9"))
	var batch deltafifo.Batch
	if err := f.Pop(t.Context(), &batch, 10); !errors.Is(err, broken) {
		t.Errorf("Pop: %v, want %v", err, broken)
	}
	if f.HasSynced() {
		t.Error("it says it has synced")
	}
}

// TestDeltaFIFO_HasSynced and _HasSyncedCorrectOnDeletion of client-go.
func TestHasSyncedWhenTheFirstListWasApplied(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	var batch deltafifo.Batch
	state := func(want bool, when string) {
		t.Helper()
		if f.HasSynced() != want {
			t.Errorf("HasSynced is %v %s", !want, when)
		}
	}
	state(false, "at the start")
	ok(t, f.BeginReplace(ctx, resource.Relist{Initial: true}))
	ok(t, f.Replace(ctx, object("a", "1")))
	state(false, "during the list")
	ok(t, f.EndReplace(ctx, "2"))
	for _, when := range []string{"before the begin was applied", "before the item was", "before the end was"} {
		state(false, when)
		ok(t, f.Pop(ctx, &batch, 1))
	}
	state(false, "while the end is being applied")
	ok(t, popNothing(t, f, &batch))
	state(true, "when all is applied")
}

func TestHasSyncedAtOnceWhenTheStreamIsResumed(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ok(t, f.Bookmark(t.Context(), "7"))
	if !f.HasSynced() {
		t.Error("a resumed stream is not synced")
	}
}

// TestDeltaFIFO_Resync, _UpdateResyncRace, _ResyncNonExisting of client-go.
func TestResyncLeavesObjectsAloneThatWaitAnyway(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	ok(t, f.Update(ctx, object("a", "5")))
	ok(t, f.Resync(ctx, "a", 1))
	ok(t, f.Resync(ctx, "b", 1))
	want(t, popAll(t, f), "a: Updated 5", "b: Sync")
}

func TestItNeverHoldsMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := object("a", "1").Size()
		f := newFIFO(t, deltafifo.Config{MaxBytes: 3 * one})
		var added atomic.Int32
		go func() {
			for i := range 10 {
				ok(t, f.Add(t.Context(), object(string(rune('a'+i)), "1")))
				added.Add(1)
			}
		}()
		var batch deltafifo.Batch
		for popped := 0; popped < 10; popped += len(batch.Deltas) {
			synctest.Wait()
			if s := f.Stats(); s.Bytes > 3*one {
				t.Fatalf("it holds %d bytes of %d", s.Bytes, 3*one)
			} else if added.Load() < 10 && s.Bytes != 3*one {
				t.Fatalf("Add blocks with %d bytes of %d", s.Bytes, 3*one)
			}
			ok(t, f.Pop(t.Context(), &batch, 2))
		}
	})
}

func TestAnObjectLargerThanTheBoundPassesAlone(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{MaxBytes: 10})
	ok(t, f.Add(t.Context(), object("a", "1")))
	want(t, popAll(t, f), "a: Added 1")
}

func TestAddGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{MaxBytes: 10})
		ok(t, f.Add(t.Context(), object("a", "1")))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("stop reading")
		done := make(chan error, 1)
		go func() { done <- f.Add(ctx, object("b", "2")) }()
		synctest.Wait()
		cancel(why)
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("Add: %v, want %v", err, why)
		}
	})
}

// TestDeltaFIFO_PopShouldUnblockWhenClosed of client-go.
func TestPopHandsOutTheRestAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		ok(t, f.Add(t.Context(), object("a", "1")))
		f.Close()
		if err := f.Add(t.Context(), object("b", "2")); !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
		var batch deltafifo.Batch
		ok(t, f.Pop(t.Context(), &batch, 1))
		if err := f.Pop(t.Context(), &batch, 1); !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Pop: %v, want ErrClosed", err)
		}
		empty := newFIFO(t, deltafifo.Config{})
		done := make(chan error, 1)
		go func() { done <- empty.Pop(t.Context(), &deltafifo.Batch{}, 1) }()
		synctest.Wait()
		empty.Close()
		if err := <-done; !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Pop that waited: %v, want ErrClosed", err)
		}
	})
}

func BenchmarkAddPop(b *testing.B) {
	f, err := deltafifo.New(deltafifo.Config{Known: &known{}})
	if err != nil {
		b.Fatal(err)
	}
	objects := make([]*resource.Object, 256)
	for i := range objects {
		objects[i] = object(fmt.Sprint("pod-", i), "1")
	}
	var batch deltafifo.Batch
	b.ReportAllocs()
	for b.Loop() {
		for _, obj := range objects {
			_ = f.Update(b.Context(), obj)
		}
		_ = f.Pop(b.Context(), &batch, len(objects))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(objects)), "ns/delta")
}

func TestTheBytesAreThoseOfWhatWaits(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	for n := range 40 {
		obj := object("a-"+strconv.Itoa(n%3), strconv.Itoa(100+n))
		obj.Raw = append(obj.Raw, strings.Repeat(" ", n*n)...)
		add := []func(context.Context, *resource.Object) error{f.Update, f.Delete, f.Delete, f.Add}[n/4%4]
		if err := add(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	waits := f.Stats().Bytes
	var batch deltafifo.Batch
	if err := f.Pop(ctx, &batch, 100); err != nil {
		t.Fatal(err)
	}
	popped := 0
	for _, deltas := range batch.Deltas {
		for _, d := range deltas.Items {
			popped += d.Object.Size()
		}
	}
	if waits != popped || f.Stats().Bytes != 0 {
		t.Errorf("it counted %d bytes, gave out %d, and counts %d then", waits, popped, f.Stats().Bytes)
	}
}
