package deltafifo_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestOrder(t *testing.T) {
	t.Run("deltas come as they were added, those of one object too", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		ctx := t.Context()
		testkit.OK(t, f.Add(ctx, object("a", "1")))
		testkit.OK(t, f.Add(ctx, object("b", "2")))
		testkit.OK(t, f.Update(ctx, object("a", "3")))
		testkit.OK(t, f.Bookmark(ctx, "4"))
		testkit.OK(t, f.Delete(ctx, object("a", "5")))
		testkit.OK(t, f.Delete(ctx, object("a", "6")))
		testkit.OK(t, f.Update(ctx, object("b", "7")))
		testkit.Want(t, popAll(t, f),
			"Added a 1", "Added b 2", "Updated a 3", "Bookmark 4", "Deleted a 5", "Deleted a 6", "Updated b 7")
	})
	t.Run("what is added while others wait does not pass them", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		list(t, f, "9", "foo@5", "bar@6")
		testkit.OK(t, f.Update(t.Context(), object("foo", "10")))
		testkit.Want(t, pop(t, f), "ReplaceBegin")
		testkit.OK(t, f.Update(t.Context(), object("foo", "11")))
		testkit.Want(t, popAll(t, f),
			"Replaced foo 5", "Replaced bar 6", "ReplaceEnd 9", "Updated foo 10", "Updated foo 11")
	})
	t.Run("a delete of an unknown object is handed out", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		testkit.OK(t, f.Add(t.Context(), object("foo", "10")))
		testkit.OK(t, f.Delete(t.Context(), object("baz", "20")))
		testkit.Want(t, popAll(t, f), "Added foo 10", "Deleted baz 20")
	})
	t.Run("a Sync comes behind the changes that wait", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		testkit.OK(t, f.Update(t.Context(), object("a", "5")))
		testkit.OK(t, f.Resync(t.Context(), "a", 1, 7, 42))
		testkit.OK(t, f.Snapshot(t.Context(), "a", 2, 8))
		var got []deltafifo.Delta
		testkit.OK(t, f.Pop(t.Context(), process(func(d deltafifo.Deltas) error {
			got = append(got, d...)
			return nil
		})))
		snapshot := deltafifo.Delta{Type: deltafifo.Sync, Key: "a", Listeners: 2, Round: 8, Snapshot: true}
		resync := deltafifo.Delta{Type: deltafifo.Sync, Key: "a", Listeners: 1, Round: 7, After: 42}
		if len(got) != 3 || got[1] != resync || got[2] != snapshot {
			t.Errorf("processed %+v", got)
		}
	})
	t.Run("what each of two producers adds comes in its order", func(t *testing.T) {
		const amount = 500
		f := newFIFO(t, deltafifo.Config{MaxBytes: 100 * object("a-100", "1").Size()})
		var adding sync.WaitGroup
		for _, who := range []string{"a", "b"} {
			adding.Go(func() {
				defer f.Flush()
				for i := range amount {
					if err := f.Add(t.Context(), object(fmt.Sprint(who, "-", i), strconv.Itoa(i+1))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		last := map[string]int{}
		for last["a"]+last["b"] < 2*amount {
			testkit.OK(t, f.Pop(t.Context(), process(func(deltas deltafifo.Deltas) error {
				for _, d := range deltas {
					who := string(d.Key[0])
					last[who]++
					if string(d.Object.Version) != strconv.Itoa(last[who]) {
						return fmt.Errorf("%s is the %dth of %s", line(&d), last[who], who)
					}
				}
				return nil
			})))
		}
		adding.Wait()
	})
}

func TestBound(t *testing.T) {
	t.Run("adding waits while the bytes would pass the bound", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			one := object("a", "1").Size()
			f := newFIFO(t, deltafifo.Config{MaxBytes: 300 * one})
			var added atomic.Int32
			go func() {
				for range 1000 {
					testkit.OK(t, f.Add(t.Context(), object("a", "1")))
					added.Add(1)
				}
			}()
			for processed := 0; processed < 1000; {
				synctest.Wait()
				n := int(added.Load())
				if s := f.Stats(); n < 1000 && s.Bytes != 300*one || s.Bytes != (n-processed)*one {
					t.Fatalf("%d bytes wait of %d, when %d deltas were added", s.Bytes, s.MaxBytes, n)
				}
				processed += len(pop(t, f))
			}
		})
	})
	t.Run("an object that is larger passes alone", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{MaxBytes: 10})
		testkit.OK(t, f.Add(t.Context(), object("a", "1")))
		testkit.Want(t, popAll(t, f), "Added a 1")
	})
	t.Run("a Sync counts", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{MaxBytes: 64 << 10})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		queued := 0
		for f.Snapshot(ctx, resource.Key(fmt.Sprint("o", queued)), 1, 77) == nil {
			queued++
		}
		if queued != 4 {
			t.Errorf("%d Syncs have room, want 4", queued)
		}
	})
	t.Run("adding gives up when its context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFIFO(t, deltafifo.Config{MaxBytes: 10})
			testkit.OK(t, f.Add(t.Context(), object("a", "1")))
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
	})
	t.Run("a queue that a flood has filled gives its memory back", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		before := testkit.Heap()
		for range 50_000 { // as deltas they take more than 5 MB
			testkit.OK(t, f.Bookmark(t.Context(), "1"))
		}
		for f.Stats().Deltas > 0 {
			testkit.OK(t, f.Pop(t.Context(), process(func(deltafifo.Deltas) error { return nil })))
		}
		if grown := testkit.Heap() - before; grown > 1<<20 {
			t.Errorf("%d bytes are kept", grown)
		}
		runtime.KeepAlive(f)
	})
}

func TestEnd(t *testing.T) {
	t.Run("what is left after Close is handed out", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		testkit.OK(t, f.Add(t.Context(), object("a", "1")))
		f.Close()
		if err := f.Add(t.Context(), object("b", "2")); !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
		testkit.Want(t, pop(t, f), "Added a 1")
		if err := popNothing(t, f); !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Pop: %v, want ErrClosed", err)
		}
	})
	t.Run("Close ends a Pop and an Add that wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			empty, full := newFIFO(t, deltafifo.Config{}), newFIFO(t, deltafifo.Config{MaxBytes: 1})
			testkit.OK(t, full.Add(t.Context(), object("a", "1")))
			done := make(chan error, 2)
			go func() { done <- empty.Pop(t.Context(), nil) }()
			go func() { done <- full.Add(t.Context(), object("b", "2")) }()
			synctest.Wait()
			empty.Close()
			full.Close()
			for range 2 {
				if err := <-done; !errors.Is(err, deltafifo.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
			}
		})
	})
	t.Run("Pop gives up when its context ends", func(t *testing.T) {
		if err := popNothing(t, newFIFO(t, deltafifo.Config{})); !errors.Is(err, context.Canceled) {
			t.Errorf("Pop: %v, want %v", err, context.Canceled)
		}
	})
	t.Run("an error of the Processor ends it", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		broken := errors.New("disk on fire")
		testkit.OK(t, f.Add(t.Context(), object("a", "1")))
		breaks := process(func(deltafifo.Deltas) error { return broken })
		if err := f.Pop(t.Context(), breaks); !errors.Is(err, broken) {
			t.Errorf("Pop: %v, want %v", err, broken)
		}
		if err := f.Add(t.Context(), object("b", "2")); !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Add: %v, want ErrClosed", err)
		}
		if err := popNothing(t, f); !errors.Is(err, broken) {
			t.Errorf("the next Pop: %v, want %v", err, broken)
		}
		if f.HasSynced() {
			t.Error("it has synced")
		}
	})
}

func BenchmarkAddPop(b *testing.B) {
	f := newFIFO(b, deltafifo.Config{})
	objects := make([]*resource.Object, 256)
	for i := range objects {
		objects[i] = object(fmt.Sprint("pod-", i), "1")
	}
	nothing := process(func(deltafifo.Deltas) error { return nil })
	b.ReportAllocs()
	for b.Loop() {
		for _, obj := range objects {
			_ = f.Update(b.Context(), obj)
		}
		_ = f.Pop(b.Context(), nothing)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(objects)), "ns/delta")
}
