package informer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// oneStalled is a sink of which one destination takes nothing: that of the object "stuck".
type oneStalled struct {
	*outbox
	missing, forbidden, silent atomic.Bool
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

func (s *oneStalled) Publish(ctx context.Context, batch []*sinks.Message) {
	for _, m := range batch {
		switch {
		case m.Event.Name == "stuck" && s.silent.Load():
			<-ctx.Done()
			m.Err = ctx.Err()
			continue
		case m.Event.Name == "stuck" && s.forbidden.Load():
			m.Err = &sinks.Error{Class: sinks.Retry, Err: errors.New("permissions violation")}
			continue
		}
		s.mu.Lock()
		s.lines = append(s.lines, describe(m.Event))
		s.mu.Unlock()
	}
}

// stalledRig is an informer with one listener and a publisher of its own.
type stalledRig struct {
	*rig
	t       *testing.T
	sink    *oneStalled
	db      *store.DB
	options []option
	end     func() // ends the publisher
}

func newStalledRig(t *testing.T, options ...option) *stalledRig {
	s := &stalledRig{t: t, sink: &oneStalled{outbox: newOutbox()}, db: memory(t), options: options}
	s.start()
	return s
}

func (s *stalledRig) start() {
	p, err := publisher.New(publisher.Config{Name: "sink-0", Sink: s.sink, Log: slog.New(slog.DiscardHandler)})
	testkit.OK(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	to := func(c *informer.StagesConfig) { c.Listeners[0].Publisher = p }
	s.rig = newRig(s.t, s.db, []*outbox{s.sink.outbox}, append([]option{to}, s.options...)...)
	s.end = func() {
		cancel()
		testkit.OK(s.t, <-ended)
	}
}

func (s *stalledRig) restart() {
	testkit.OK(s.t, s.committer.Commit())
	s.crash()
	s.end()
	s.start()
}

// want waits, and looks at what the sink was sent since the last call.
func (s *stalledRig) want(lines ...string) {
	s.t.Helper()
	time.Sleep(15 * time.Second)
	testkit.Want(s.t, s.sink.taken(), lines...)
}

// forStalls runs a test for each kind of a stalled destination, and of a listener.
func forStalls(t *testing.T, test func(t *testing.T, s *stalledRig, stall *atomic.Bool)) {
	for name, stall := range map[string]func(s *oneStalled) *atomic.Bool{
		"a missing topic":     func(s *oneStalled) *atomic.Bool { return &s.missing },
		"a forbidden subject": func(s *oneStalled) *atomic.Bool { return &s.forbidden },
	} {
		for kind, options := range map[string][]option{"": nil, ", newest states": {latest(16)}} {
			t.Run(name+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStalledRig(t, options...)
					stall(s.sink).Store(true)
					test(t, s, stall(s.sink))
					s.stop()
					s.end()
				})
			})
		}
	}
}

// An object whose destination takes nothing keeps back no other one, though lists and gaps come
// meanwhile. That a list is complete is reported when it is.
func TestStalledDestination(t *testing.T) {
	forStalls(t, func(_ *testing.T, s *stalledRig, stall *atomic.Bool) {
		s.list(initial, "10", "a@4", "stuck@7")
		s.update("a", "11")
		s.want("resource.added a ua/4 initial", "resource.updated a ua/11")
		s.list(expired, "20", "a@18", "stuck@7")
		s.update("a", "21")
		s.want("informer.gap  all/pods/gap/3/20 inferred",
			"resource.updated a ua/18 inferred", "resource.updated a ua/21")
		stall.Store(false)
		time.Sleep(time.Minute)
		s.want("resource.added stuck ustuck/7 initial",
			"informer.synced  all/pods/synced/10", "informer.synced  all/pods/synced/20")
		s.update("stuck", "30")
		s.update("a", "31")
		s.want("resource.updated stuck ustuck/30", "resource.updated a ua/31")
	})
}

// While the list behind a gap has not ended, nothing reports that everything is there: neither when
// the object gets on before, nor after a crash.
func TestStalledListEnd(t *testing.T) {
	for _, dies := range []bool{false, true} {
		forStalls(t, func(t *testing.T, s *stalledRig, stall *atomic.Bool) {
			s.list(initial, "10", "a@4", "stuck@7")
			s.want("resource.added a ua/4 initial")
			testkit.OK(t, s.fifo.BeginReplace(t.Context(), expired))
			s.replace("a", "18")
			s.want("informer.gap  all/pods/gap/3/20 inferred", "resource.updated a ua/18 inferred")
			if dies {
				s.restart()
			}
			stall.Store(false)
			time.Sleep(time.Minute)
			if dies {
				s.want("resource.added stuck ustuck/7 initial", "informer.gap  all/pods/gap/3/20 inferred")
				testkit.OK(t, s.fifo.BeginReplace(t.Context(), resource.Relist{Reason: "interrupted", From: "10", To: "20"}))
				s.replace("a", "18")
				s.want("informer.gap  all/pods/gap/10/20 inferred")
			} else {
				s.want("resource.added stuck ustuck/7 initial")
			}
			s.replace("stuck", "7")
			testkit.OK(t, s.fifo.EndReplace(t.Context(), "20"))
			s.want("informer.synced  all/pods/synced/10", "informer.synced  all/pods/synced/20")
			s.update("a", "21")
			s.want("resource.updated a ua/21")
		})
	}
}

// Other objects continue while at most so many events wait for a destination that takes nothing.
// Then all wait on disk, and nothing is lost.
func TestStalledBound(t *testing.T) {
	for name, c := range map[string]struct {
		stall func(s *oneStalled) *atomic.Bool
		bound int
	}{
		"a missing topic":     {func(s *oneStalled) *atomic.Bool { return &s.missing }, 1024},
		"a forbidden subject": {func(s *oneStalled) *atomic.Bool { return &s.forbidden }, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStalledRig(t)
				c.stall(s.sink).Store(true)
				s.list(initial, "10", "a@4")
				s.want("resource.added a ua/4 initial", "informer.synced  all/pods/synced/10")
				version := 10
				var sent []string
				kind := "added"
				stick := func(n int) {
					for range n {
						version++
						s.update("stuck", strconv.Itoa(version))
						sent = append(sent, fmt.Sprintf("resource.%s stuck ustuck/%d", kind, version))
						kind = "updated"
					}
				}
				stick(c.bound - 1)
				s.update("a", "10000")
				s.want("resource.updated a ua/10000")
				version = 10000
				stick(2)
				s.update("a", "20000")
				s.want()
				c.stall(s.sink).Store(false)
				time.Sleep(time.Minute)
				got := s.sink.taken()
				is := func(line string) bool { return line == "resource.updated a ua/20000" }
				if !slices.ContainsFunc(got, is) {
					t.Error("the other object's event did not come")
				}
				testkit.Want(t, slices.DeleteFunc(got, is), sent...)
				s.stop()
				s.end()
			})
		})
	}
}

// Events of two epochs do not mix: a gap that begins another one waits for what is stalled.
func TestStalledRewind(t *testing.T) {
	forStalls(t, func(_ *testing.T, s *stalledRig, stall *atomic.Bool) {
		s.list(initial, "10", "a@4", "stuck@7")
		s.want("resource.added a ua/4 initial")
		s.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "10", To: "9"}, "9", "a@3", "stuck@7")
		s.want()
		stall.Store(false)
		time.Sleep(time.Minute)
		s.want("resource.added stuck ustuck/7 initial", "informer.synced  all/pods/synced/10",
			"informer.gap  all/pods/gap/10/9/epoch/1 inferred", "resource.updated a ua/3/epoch/1 inferred",
			"informer.synced  all/pods/synced/9/epoch/1")
	})
}

// A sink that does not answer is not a destination that takes nothing: everything waits for it.
func TestSilentDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStalledRig(t)
		s.sink.silent.Store(true)
		s.list(initial, "10", "a@4", "stuck@7")
		s.list(expired, "20", "a@18", "stuck@7")
		time.Sleep(time.Minute)
		s.want("resource.added a ua/4 initial")
		s.sink.silent.Store(false)
		time.Sleep(time.Minute)
		s.want("resource.added stuck ustuck/7 initial", "informer.synced  all/pods/synced/10",
			"informer.gap  all/pods/gap/3/20 inferred", "resource.updated a ua/18 inferred",
			"informer.synced  all/pods/synced/20")
		s.stop()
		s.end()
	})
}

var _ processor.StallReporter = (*publisher.Publisher)(nil)
