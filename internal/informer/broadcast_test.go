package informer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// partitioned is an outbox whose sink has three partitions.
type partitioned struct{ *outbox }

func (partitioned) Parts(context.Context, *event.Event) (int, error) { return 3, nil }

func (partitioned) KeepHolds(map[string]*publisher.PositionHold) {}

func broadcasting(out *outbox) option {
	return func(c *informer.StagesConfig) { c.Listeners[0].Publisher = partitioned{out} }
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

// halves is a sink with two partitions that can be read back.
type halves struct {
	*testkit.Session
	holds string // the MessageID of what an earlier process has stored
	end   byte   // of its log
}

func (*halves) Parts(context.Context, *event.Event) (int, error) { return 2, nil }

func (s *halves) Position() []byte { return []byte{s.end} }

func (s *halves) ReadBack(_ context.Context, _ []byte, found func(string)) error {
	if s.holds != "" {
		found(s.holds)
	}
	return nil
}

// startHalves has a publisher bring what an option says to a sink.
func startHalves(t *testing.T, s *halves) (*publisher.Publisher, option) {
	s.Session = testkit.NewBroker(t, "halves", sinks.ByObject).Connect(0)
	p, err := publisher.New(publisher.Config{Sink: s, Name: "halves"})
	testkit.OK(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.OK(t, <-done)
	})
	return p, func(c *informer.StagesConfig) { c.Listeners[0].Publisher = p }
}

// TestBroadcastPosition has the position that is saved of a broker's log stay before the first copy
// until all copies are settled, and get on then.
func TestBroadcastPosition(t *testing.T) {
	const synced = "all/pods/synced/10/partition/%d"
	for recalled := range 2 {
		t.Run(fmt.Sprintf("copy %d was stored by an earlier process", recalled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &halves{holds: "all/" + fmt.Sprintf(synced, recalled)}
				p, publishing := startHalves(t, sink)
				r := newRig(t, memory(t), []*outbox{nil}, publishing)
				r.list(initial, "10")
				r.stop()
				sink.end++
				if got := p.Position(); got[0] != sink.end {
					t.Errorf("the position is %d when all is settled, want %d", got[0], sink.end)
				}
				testkit.Want(t, sink.Stored(""), fmt.Sprintf(synced, 1-recalled))
			})
		})
	}
	t.Run("the informer ends between two copies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink, db := &halves{}, memory(t)
			p, publishing := startHalves(t, sink)
			at := func(when string, want byte) {
				t.Helper()
				sink.end++
				if got := p.Position(); got[0] != want {
					t.Errorf("%s the position is %d, want %d", when, got[0], want)
				}
			}
			sink.OnPublish = func(context.Context, []*sinks.Message) { p.Pause() } // after this call
			r := newRig(t, db, []*outbox{nil}, publishing)
			r.list(initial, "10")
			synctest.Wait()
			testkit.Want(t, sink.Stored(""), fmt.Sprintf(synced, 0))
			r.crash()
			testkit.OK(t, r.informer.End())
			testkit.OK(t, r.committer.Commit())
			at("while one copy is pending", 0)
			sink.OnPublish = nil
			p.Resume()
			newRig(t, db, []*outbox{nil}, publishing).stop()
			at("when all are settled", 2)
		})
	})
}
