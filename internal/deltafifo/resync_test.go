package deltafifo_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
)

// Listeners of one period ask at the same moment: whoever comes second must not be left out because the first one's Sync waits.
func TestASyncThatWaitsIsForAllWhoAsked(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ok(t, f.Resync(t.Context(), "a", 1))
	ok(t, f.Resync(t.Context(), "a", 4))
	ok(t, f.Update(t.Context(), object("b", "5")))
	ok(t, f.Resync(t.Context(), "b", 2)) // told by the update
	var batch deltafifo.Batch
	ok(t, f.Pop(t.Context(), &batch, 10))
	if len(batch.Deltas) != 2 || len(batch.Deltas[0].Items) != 1 || len(batch.Deltas[1].Items) != 1 {
		t.Fatalf("popped %v", batch.Deltas)
	}
	if got := batch.Deltas[0].Items[0].Resync; got != 5 {
		t.Errorf("the Sync is for set %b, want 101", got)
	}
}

// A snapshot comes in any case: not in the place of a change that a filter may keep back, nor for those only who asked for another.
func TestASnapshotComesBehindWhatWaits(t *testing.T) {
	f := newFIFO(t, deltafifo.Config{})
	ok(t, f.Update(t.Context(), object("a", "5")))
	ok(t, f.Snapshot(t.Context(), "a", 1, 77))
	ok(t, f.Resync(t.Context(), "a", 2))
	ok(t, f.Snapshot(t.Context(), "a", 4, 78))
	var batch deltafifo.Batch
	ok(t, f.Pop(t.Context(), &batch, 10))
	var got []deltafifo.Delta
	for _, d := range batch.Deltas {
		got = append(got, d.Items...)
	}
	if len(got) != 4 || got[0].Type != deltafifo.Updated || got[1].Round != 77 || got[2].Resync != 2 || got[3].Round != 78 {
		t.Errorf("popped %+v", got)
	}
}

func TestSnapshotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{MaxBytes: 64 << 10})
		queued := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for f.Snapshot(ctx, resource.Key(fmt.Sprint("o", queued)), 1, 77) == nil {
			queued++
		}
		if queued != 4 {
			t.Errorf("%d queued", queued)
		}
	})
}
