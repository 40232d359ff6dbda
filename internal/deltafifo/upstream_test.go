package deltafifo_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
)

// Cases of client-go's tests that no other test here has. docs/upstream-cases.md is the whole list.

// popped pops once and gives the lines.
func popped(t *testing.T, f *deltafifo.FIFO, batch *deltafifo.Batch, limit int) []string {
	t.Helper()
	ok(t, f.Pop(t.Context(), batch, limit))
	var lines []string
	for _, deltas := range batch.Deltas {
		lines = append(lines, line(deltas))
	}
	return lines
}

// list queues a whole list of "name@version" items.
func list(t *testing.T, f *deltafifo.FIFO, version resource.Version, items ...string) {
	t.Helper()
	ok(t, f.BeginReplace(t.Context(), resource.Relist{}))
	for _, item := range items {
		name, v, _ := strings.Cut(item, "@")
		ok(t, f.Replace(t.Context(), object(name, v)))
	}
	ok(t, f.EndReplace(t.Context(), version))
}

// As TestFIFO_basic, TestDeltaFIFO_basic and TestRealFIFO_basic: what each of two goroutines adds comes in its order.
func TestWhatTwoAddAtOnceComesInTheOrderOfEach(t *testing.T) {
	const amount = 500
	f := newFIFO(t, deltafifo.Config{MaxBytes: 100 * object("a-100", "1").Size()})
	var adding sync.WaitGroup
	for _, who := range []string{"a", "b"} {
		adding.Go(func() {
			for i := range amount {
				if err := f.Add(t.Context(), object(fmt.Sprint(who, "-", i), strconv.Itoa(i+1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	last := map[string]int{}
	var batch deltafifo.Batch
	for n := 0; n < 2*amount; n += len(batch.Deltas) {
		ok(t, f.Pop(t.Context(), &batch, 64))
		for _, deltas := range batch.Deltas {
			who := string(deltas.Key[0])
			v, err := strconv.Atoi(string(deltas.Items[0].Object.Version))
			if err != nil || v != last[who]+1 || len(deltas.Items) != 1 {
				t.Fatalf("%s comes after %d of %s", line(deltas), last[who], who)
			}
			last[who] = v
		}
	}
	adding.Wait()
}

// As TestFIFO_detectLineJumpers and its sisters: what waits again goes to the end of the line.
func TestAnObjectDoesNotJumpTheLine(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	var batch deltafifo.Batch
	ok(t, f.Add(ctx, object("foo", "10")))
	ok(t, f.Add(ctx, object("bar", "11")))
	ok(t, f.Update(ctx, object("foo", "12")))
	ok(t, f.Add(ctx, object("zab", "13")))
	want(t, popped(t, f, &batch, 1), "foo: Added 10, Updated 12")
	ok(t, f.Update(ctx, object("foo", "14")))
	want(t, popped(t, f, &batch, 1), "bar: Added 11")
	want(t, popped(t, f, &batch, 1), "zab: Added 13")
	want(t, popped(t, f, &batch, 1), "foo: Updated 14")
}

// As TestDeltaFIFO_replaceWithDeleteDeltaIn and _addReplace: an object that is listed while its delete waits is told as both.
func TestAListedObjectFollowsWhatWaitsOfIt(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ok(t, f.Delete(t.Context(), object("foo", "1")))
	ok(t, f.Add(t.Context(), object("bar", "2")))
	list(t, f, "5", "foo@3", "bar@4")
	want(t, popAll(t, f), "foo: Deleted 1", "bar: Added 2", ": ReplaceBegin", "foo: Replaced 3", "bar: Replaced 4", ": ReplaceEnd 5")
}

// Unlike TestDeltaFIFO_enqueueingNoLister, which drops the delete of what is not known: the API server told it, so it is told on.
func TestADeleteOfSomethingUnknownIsKept(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	ok(t, f.Add(ctx, object("foo", "10")))
	ok(t, f.Update(ctx, object("bar", "15")))
	ok(t, f.Add(ctx, object("qux", "17")))
	ok(t, f.Delete(ctx, object("qux", "18")))
	ok(t, f.Delete(ctx, object("baz", "20")))
	want(t, popAll(t, f), "foo: Added 10", "bar: Updated 15", "qux: Added 17, Deleted 18", "baz: Deleted 20")
}

// As TestDeltaFIFO_ResyncNonExisting and _UpdateResyncRace: what waits tells more than a Sync, also where it waits behind others.
func TestAResyncLeavesADeleteAlone(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	ok(t, f.Update(ctx, object("a", "1")))
	ok(t, f.Delete(ctx, object("b", "2")))
	for _, key := range []resource.Key{"b", "a", "c"} {
		ok(t, f.Resync(ctx, key, 1))
	}
	want(t, popAll(t, f), "a: Updated 1", "b: Deleted 2", "c: Sync")
}

// As TestDeltaFIFO_HasSyncedCorrectOnDeletion: the deletes that the first list implies belong to it.
func TestHasSyncedOnlyAfterTheInferredDeletes(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{Known: &known{missing: []resource.Key{"bar", "baz"}}})
	list(t, f, "9", "foo@5")
	var batch deltafifo.Batch
	for _, expected := range []string{": ReplaceBegin", "foo: Replaced 5", "bar: Deleted 9 unknown", "baz: Deleted 9 unknown", ": ReplaceEnd 9"} {
		if f.HasSynced() {
			t.Errorf("it has synced before %s", expected)
		}
		want(t, popped(t, f, &batch, 1), expected)
	}
	if f.HasSynced() {
		t.Error("it has synced before the end was applied")
	}
	ok(t, popNothing(t, f, &batch))
	if !f.HasSynced() {
		t.Error("it has not synced when all was applied")
	}
}

// As the table of TestDeltaFIFO_HasSynced.
func TestHasSyncedAfterAFirstChangeOrList(t *testing.T) {
	tests := []struct {
		name string
		fill func(f *deltafifo.FIFO)
		want bool
	}{
		{"nothing has come", func(*deltafifo.FIFO) {}, false},
		{"it began with a change", func(f *deltafifo.FIFO) { ok(t, f.Add(t.Context(), object("a", "1"))) }, true},
		{"an empty list was applied", func(f *deltafifo.FIFO) { list(t, f, "5"); popAll(t, f) }, true},
		{"a list waits", func(f *deltafifo.FIFO) { list(t, f, "5", "a@1", "b@2") }, false},
		{"a list was applied", func(f *deltafifo.FIFO) { list(t, f, "5", "a@1", "b@2"); popAll(t, f) }, true},
		{"a list was applied that holds an object twice", func(f *deltafifo.FIFO) {
			list(t, f, "5", "a@1", "a@2")
			want(t, popAll(t, f), ": ReplaceBegin", "a: Replaced 1, Replaced 2", ": ReplaceEnd 5")
		}, true},
		{"a list broke off", func(f *deltafifo.FIFO) {
			ok(t, f.BeginReplace(t.Context(), resource.Relist{}))
			ok(t, f.Replace(t.Context(), object("a", "1")))
			popAll(t, f)
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFIFO(t, deltafifo.Config{})
			tt.fill(f)
			if got := f.HasSynced(); got != tt.want {
				t.Errorf("HasSynced = %v", got)
			}
		})
	}
}

// As TestRealFIFO_ReplaceAtomic and _ReplaceAtomicPop: several lists that wait stay apart, and bookmarks in their place between them.
func TestListsAndBookmarksKeepTheirPlaces(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ctx := t.Context()
	ok(t, f.Add(ctx, object("foo", "3")))
	ok(t, f.Bookmark(ctx, "4"))
	list(t, f, "10", "foo@3")
	list(t, f, "20", "foo@3", "bar@15")
	ok(t, f.Bookmark(ctx, "30"))
	list(t, f, "56")
	want(t, popAll(t, f), "foo: Added 3", ": Bookmark 4",
		": ReplaceBegin", "foo: Replaced 3", ": ReplaceEnd 10",
		": ReplaceBegin", "foo: Replaced 3", "bar: Replaced 15", ": ReplaceEnd 20",
		": Bookmark 30", ": ReplaceBegin", ": ReplaceEnd 56")
}

// As TestRealFIFO_PopMultipleDeltaInBatch.
func TestABatchEndsAtItsSizeAndAtTheEdgesOfAList(t *testing.T) {
	const unlimited = 999
	update := func(names ...string) func(*deltafifo.FIFO) {
		return func(f *deltafifo.FIFO) {
			for i, name := range names {
				ok(t, f.Update(t.Context(), object(name, strconv.Itoa(20+i))))
			}
		}
	}
	tests := []struct {
		name  string
		list  []string
		then  func(*deltafifo.FIFO)
		limit int
		want  []string // batches
	}{
		{"changes before a list are apart", nil, func(f *deltafifo.FIFO) {
			update("a", "b")(f)
			list(t, f, "30", "a@20")
		}, unlimited, []string{"begin", "end", "a b", "begin", "a", "end"}},
		{"a list alone", []string{"a@1", "b@2", "c@3"}, update(), unlimited, []string{"begin", "a b c", "end"}},
		{"changes after a list are apart", []string{"a@1", "b@2"}, update("c", "d"), 2, []string{"begin", "a b", "end", "c d"}},
		{"changes of one object are together", []string{"a@1"}, update("a", "a"), unlimited, []string{"begin", "a", "end", "a"}},
		{"a changed object does not join its listed self", []string{"a@1", "b@2"}, update("b", "c"), unlimited, []string{"begin", "a b", "end", "b c"}},
		{"a list larger than a batch", []string{"a@1", "b@2", "c@3"}, update(), 2, []string{"begin", "a b", "c", "end"}},
		{"more changes than a batch", nil, update("a", "b", "c"), 2, []string{"begin", "end", "a b", "c"}},
		{"both", []string{"a@1", "b@2", "c@3"}, update("d"), 2, []string{"begin", "a b", "c", "end", "d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFIFO(t, deltafifo.Config{})
			list(t, f, "10", tt.list...)
			tt.then(f)
			var batch deltafifo.Batch
			var batches []string
			for f.Stats().Entries > 0 {
				ok(t, f.Pop(t.Context(), &batch, tt.limit))
				batches = append(batches, keysOf(batch.Deltas))
			}
			if !slices.Equal(batches, tt.want) {
				t.Errorf("batches %q, want %q", batches, tt.want)
			}
		})
	}
}

// keysOf names the entries of a batch.
func keysOf(deltas []deltafifo.Deltas) string {
	var keys []string
	for _, d := range deltas {
		switch d.Items[0].Type {
		case deltafifo.ReplaceBegin:
			keys = append(keys, "begin")
		case deltafifo.ReplaceEnd:
			keys = append(keys, "end")
		default:
			keys = append(keys, string(d.Key))
		}
	}
	return strings.Join(keys, " ")
}
