package informer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// partitioned is an outbox whose sink has three partitions.
type partitioned struct{ *outbox }

func (partitioned) Parts(context.Context, *event.Event) (int, error) { return 3, nil }

func broadcasting(out *outbox) option {
	return func(c *informer.Config) { c.Listeners[0].Publisher = partitioned{out} }
}

func copies(line string) (lines []string) {
	for part := range 3 {
		lines = append(lines, fmt.Sprintf(line, part))
	}
	return lines
}

func TestBroadcast(t *testing.T) {
	const synced = "informer.synced  all/pods/synced/10/partition/%d"
	t.Run("an event about the informer has a copy for each partition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, broadcasting(out))
			r.list(initial, "10", "a@4")
			r.update("a", "11")
			want := slices.Concat([]string{"resource.added a ua/4 initial"}, copies(synced),
				[]string{"resource.updated a ua/11"})
			testkit.Want(t, out.wait(t, 5), want...)
			for n, e := range out.raw {
				if wantPart := max(0, min(n, 4)%4); e.Part != wantPart {
					t.Errorf("%s is for part %d, want %d", e.ID, e.Part, wantPart)
				}
			}
			r.stop()
			if got := r.informer.Log().Status().Watermark; got != "10" {
				t.Errorf("watermark %s, want 10", got)
			}
		})
	})
	t.Run("it is settled when all copies are", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			r := newRig(t, db, []*outbox{out}, broadcasting(out))
			out.setHold(true)
			r.list(initial, "10")
			out.wait(t, 3)
			out.mu.Lock()
			held := out.held
			out.held = nil
			out.mu.Unlock()
			settle(held[:2])
			testkit.OK(t, r.committer.Commit())
			if got := r.informer.Log().Status().Watermark; got != "" {
				t.Errorf("watermark %q while a copy is missing", got)
			}
			settle(held[2:])
			r.stop()
			if got := r.informer.Log().Status().Watermark; got != "10" {
				t.Errorf("watermark %q, want 10", got)
			}
		})
	})
}
