package deltafifo_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
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
