package history_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A disk may fail at any operation, read or write, in any way: what was stored is there after a
// restart, and the failure is reported or waited for.
func TestRandomDiskErrors(t *testing.T) {
	events := pointers(testkit.Events(t, 1, 20, 20))
	outcomes := map[string]int{}
	for run := range testkit.Rounds(*damageRuns, 20) {
		fault := testkit.NewRandomFault(rand.New(rand.NewPCG(53, uint64(run))), 1000)
		mem := vfs.NewCrashableMem()
		outcome, stored := storeOnFailingDisk(t, mem, fault, events)
		outcomes[outcome]++
		what := fmt.Sprintf("run %d, %s with %v", run, outcome, fault.Err)
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		db, err := history.Open(history.Options{Dir: "history", FS: after})
		testkit.OK(t, err)
		for _, u := range db.Questions.Resources.Units() {
			for o, err := range db.Questions.Objects.All(u, "") {
				testkit.OK(t, err)
				for v, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
					testkit.OK(t, err)
					delete(stored, v.Event.Sequence)
				}
			}
		}
		if len(stored) > 0 {
			t.Errorf("%s: %d versions that were stored are gone", what, len(stored))
		}
		testkit.OK(t, db.Close())
	}
	t.Log(outcomes)
}

// storeOnFailingDisk stores events until the disk fails. It returns how that ended, and what was
// stored.
func storeOnFailingDisk(
	t *testing.T, mem *vfs.MemFS, fault *testkit.RandomFault, events []*event.Event,
) (outcome string, stored map[string]bool) {
	acked := make(chan map[string]bool, 1)
	acked <- map[string]bool{}
	ended := make(chan string, 1)
	go func() { // it may never come back
		db, err := history.Open(history.Options{
			Dir: "history", FS: errorfs.Wrap(mem, fault), MemTableBytes: 64 << 10, DiskFull: func(error) {},
		})
		if err != nil {
			ended <- "refused at the start"
			return
		}
		for i := 0; i < len(events); i += 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := db.Writer.Append(ctx, events[i:i+10])
			timedOut := ctx.Err() != nil
			cancel()
			switch {
			case timedOut:
				ended <- "waits"
				return
			case err != nil:
				ended <- "an error"
				return
			}
			all := <-acked
			for _, e := range events[i : i+10] {
				if !e.AboutInformer() {
					all[e.Sequence] = true
				}
			}
			acked <- all
		}
		ended <- "lives"
	}()
	select {
	case outcome = <-ended:
	case <-time.After(20 * time.Second):
		t.Errorf("with %v it neither ends nor continues", fault.Err)
		outcome = "STUCK"
	}
	return outcome, maps.Clone(<-acked)
}
