package informer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Cases of client-go's tests that no other test here has. docs/testdata/upstream_cases.txt has all.

// taken gives what has come, without waiting.
func (o *outbox) taken() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.lines
	o.lines = nil
	return lines
}

// ofObjects leaves out what is about the informer.
func ofObjects(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "informer.") })
}

// As TestDeltaFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue and its sister: what a list does not
// hold is deleted, once, also when it was still in the queue as the list came.
func TestListDeletesQueued(t *testing.T) {
	tests := []struct {
		name string
		fill func(r *rig)
		want []string
	}{
		{"added", func(r *rig) {
			r.add("a", "2")
			r.list(expired, "20")
		}, []string{"resource.added a ua/2", "resource.deleted a ua/deleted inferred"}},
		{"added and listed", func(r *rig) {
			r.add("a", "2")
			r.list(expired, "20", "a@2")
			r.list(expired, "21")
		}, []string{"resource.added a ua/2", "resource.deleted a ua/deleted inferred"}},
		{"deleted", func(r *rig) {
			r.add("a", "2")
			r.delete("a", "3")
			r.list(expired, "20")
		}, []string{"resource.added a ua/2", "resource.deleted a ua/deleted"}},
		{"listed twice", func(r *rig) {
			r.add("a", "2")
			r.list(expired, "20", "a@2")
			r.list(expired, "21", "a@2")
			r.list(expired, "22")
		}, []string{"resource.added a ua/2", "resource.deleted a ua/deleted inferred"}},
		{"not in two lists", func(r *rig) {
			r.add("a", "2")
			r.list(expired, "20")
			r.list(expired, "21")
		}, []string{"resource.added a ua/2", "resource.deleted a ua/deleted inferred"}},
		{"deleted and made again", func(r *rig) {
			r.add("a", "2")
			r.delete("a", "3")
			r.add("a#2", "4")
			r.list(expired, "20")
		}, []string{"resource.added a ua/2", "resource.deleted a ua/deleted", "resource.added a ua2/4", "resource.deleted a ua2/deleted inferred"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out})
				tt.fill(r)
				r.stop()
				testkit.Want(t, ofObjects(out.taken()), tt.want...)
			})
		})
	}
}

// As TestReplaceEvents: what a list makes of what was known. Deletes come last here: they are known
// when the list has ended.
func TestListDifferences(t *testing.T) {
	tests := []struct {
		name  string
		known []string
		list  []string
		want  []string
	}{
		{"nothing was known", nil, []string{"a@1"}, []string{"resource.added a ua/1 inferred"}},
		{"nothing is left", []string{"a@1", "c@2"}, nil, []string{
			"resource.deleted a ua/deleted inferred", "resource.deleted c uc/deleted inferred",
		}},
		{"some of all", []string{"a@1", "b@2", "c@3", "e@4"}, []string{"a@5", "b@6", "d@7", "e@4"}, []string{
			"resource.updated a ua/5 inferred", "resource.updated b ub/6 inferred", "resource.added d ud/7 inferred",
			"resource.deleted c uc/deleted inferred",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out})
				for _, item := range tt.known {
					name, version, _ := strings.Cut(item, "@")
					r.add(name, version)
				}
				out.wait(t, len(tt.known))
				r.list(expired, "20", tt.list...)
				r.stop()
				testkit.Want(t, ofObjects(out.taken()), tt.want...)
				var left []string
				for item, err := range r.indexer.All() {
					testkit.OK(t, err)
					left = append(left, strings.TrimPrefix(string(item.Key), "shop/")+"@"+string(item.Version))
				}
				if !slices.Equal(left, tt.list) {
					t.Errorf("it knows %q, want what was listed, %q", left, tt.list)
				}
			})
		})
	}
}

// As TestListenerResyncPeriods: each listener at its own period, and none that asked for none. A
// Synced has the round of its listener's period, which is what another replica would give it.
func TestResyncPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outboxes := []*outbox{newOutbox(), newOutbox(), newOutbox()}
		periods := []time.Duration{0, 2 * time.Second, 3 * time.Second}
		r := newRig(t, memory(t), outboxes, func(c *informer.StagesConfig) {
			for i := range c.Listeners {
				c.Listeners[i].Resync = periods[i]
			}
		})
		r.list(initial, "10", "a@1", "b@2")
		synctest.Wait()
		for _, out := range outboxes {
			testkit.Want(t, out.taken(), "resource.added a ua/1 initial",
				"resource.added b ub/2 initial", "informer.synced  all/pods/synced/10")
		}
		start := time.Now()
		for second := 1; second <= 12; second++ {
			time.Sleep(time.Until(start.Add(time.Duration(second) * time.Second)))
			synctest.Wait()
			for i, out := range outboxes {
				var lines []string
				if period := periods[i]; period > 0 && time.Duration(second)*time.Second%period == 0 {
					round := time.Now().UnixNano() / int64(period)
					lines = []string{fmt.Sprintf("resource.synced a ua/1/sync/%d", round), fmt.Sprintf("resource.synced b ub/2/sync/%d", round)}
				}
				if got := out.taken(); !slices.Equal(got, lines) {
					t.Errorf("second %d, listener %d: %q, want %q", second, i, got, lines)
				}
			}
		}
		r.stop()
	})
}

// As TestRealFIFO_ResyncAtomic and TestDeltaFIFO_ResyncNonExisting: a Sync reports the state there
// is when it is reached, and nothing of what is gone.
func TestSyncState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.add("a", "1")
		r.add("b", "2")
		r.delete("b", "3")
		out.wait(t, 3)
		r.resync("b")
		r.resync("unknown")
		r.update("a", "4")
		testkit.Want(t, out.wait(t, 1), "resource.updated a ua/4")
		r.resync("a")
		testkit.Want(t, out.wait(t, 1), "resource.synced a ua/4/sync/0")
		r.stop()
		testkit.Want(t, out.taken())
	})
}
