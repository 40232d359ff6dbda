package informer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// oneStalled is a sink of which one destination takes nothing: that of the object "stuck".
type oneStalled struct {
	*outbox
	missing, forbidden atomic.Bool
}

func (*oneStalled) Open(context.Context) error { return nil }
func (*oneStalled) Close() error               { return nil }
func (*oneStalled) Order() sinks.Order         { return sinks.ByObject }
func (*oneStalled) Limits() sinks.Limits       { return sinks.Limits{} }

func (*oneStalled) DeadLetter(context.Context, *event.Event, error, int) error {
	return sinks.ErrNoDeadLetter
}

func (s *oneStalled) Lane(_ context.Context, e *event.Event) (string, error) {
	if e.Name == "stuck" && s.missing.Load() {
		return "", &sinks.Error{Class: sinks.Retry, Err: errors.New("there is no topic")}
	}
	return e.PartitionKey + e.Name, nil
}

func (s *oneStalled) Publish(_ context.Context, batch []*sinks.Message) {
	for _, m := range batch {
		if m.Event.Name == "stuck" && s.forbidden.Load() {
			m.Err = &sinks.Error{Class: sinks.Retry, Err: errors.New("permissions violation")}
			continue
		}
		s.mu.Lock()
		s.lines = append(s.lines, describe(m.Event))
		s.mu.Unlock()
	}
}

// An object whose destination takes nothing keeps back no other one, though lists and gaps come
// meanwhile. That a list is complete is reported when it is, also by the next process.
func TestStalledDestination(t *testing.T) {
	for name, stall := range map[string]func(s *oneStalled, on bool){
		"a missing topic":     func(s *oneStalled, on bool) { s.missing.Store(on) },
		"a forbidden subject": func(s *oneStalled, on bool) { s.forbidden.Store(on) },
	} {
		for kind, options := range map[string][]option{"": nil, ", newest states": {latest(16)}} {
			for restart, dies := range map[string]bool{"": false, ", and a crash": true} {
				t.Run(name+kind+restart, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testStalled(t, stall, dies, options...) })
				})
			}
		}
	}
}

func testStalled(t *testing.T, stall func(s *oneStalled, on bool), dies bool, options ...option) {
	sink, db := &oneStalled{outbox: newOutbox()}, memory(t)
	stall(sink, true)
	start := func() (r *rig, stop func()) {
		p, err := publisher.New(publisher.Config{Name: "sink-0", Sink: sink, Log: slog.New(slog.DiscardHandler)})
		testkit.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		to := func(c *informer.StagesConfig) { c.Listeners[0].Publisher = p }
		return newRig(t, db, []*outbox{sink.outbox}, append([]option{to}, options...)...), func() {
			cancel()
			testkit.OK(t, <-ended)
		}
	}
	r, stop := start()
	r.list(initial, "10", "a@4", "stuck@7")
	r.update("a", "11")
	time.Sleep(15 * time.Second)
	testkit.Want(t, sink.taken(), "resource.added a ua/4 initial", "resource.updated a ua/11")
	r.list(expired, "20", "a@18", "stuck@7")
	r.update("a", "21")
	time.Sleep(15 * time.Second)
	testkit.Want(t, sink.taken(), "informer.gap  all/pods/gap/3/20 inferred",
		"resource.updated a ua/18 inferred", "resource.updated a ua/21")
	if dies {
		testkit.OK(t, r.committer.Commit())
		r.crash()
		stop()
		r, stop = start()
		time.Sleep(15 * time.Second)
		testkit.Want(t, sink.taken())
	}
	stall(sink, false)
	time.Sleep(time.Minute)
	testkit.Want(t, sink.taken(), "resource.added stuck ustuck/7 initial",
		"informer.synced  all/pods/synced/10", "informer.synced  all/pods/synced/20")
	r.update("stuck", "30")
	r.stop()
	testkit.Want(t, sink.taken(), "resource.updated stuck ustuck/30")
	stop()
}

var _ processor.StallReporter = (*publisher.Publisher)(nil)
