package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/controller"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// FIFO is the queue of deltas, which resyncs are put into: *deltafifo.FIFO.
type FIFO interface {
	controller.Queue
	Resync(ctx context.Context, key resource.Key, listeners uint64, round int64, after uint64) error
	Snapshot(ctx context.Context, key resource.Key, listeners uint64, round int64) error
	Lose(ctx context.Context, listeners uint64, round int64) error
	HasSynced() bool
}

// StagesConfig configures Stages.
type StagesConfig struct {
	// Name of the unit, for logs and errors.
	Name string
	Type resource.Type
	// Shard is the share of the objects that the informer has.
	Shard   resource.Shard
	FIFO    FIFO
	Indexer *store.Indexer
	// Committer commits the Log, once it tracks that.
	Committer changelog.Committer
	// Listeners, at least one and at most 64.
	Listeners []ListenerConfig
	// ChangeLog has the bounds of the change log. NewStages sets its other fields.
	ChangeLog changelog.Config
	controller.Config
	// Selection and Holds are those of processor.Env.
	Selection       func() resource.Version
	HoldsEarlierRun func(ctx context.Context, sink string) (holds bool, epoch int, err error)
	Log             *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// ListenerConfig is one sink's binding to the informer.
type ListenerConfig struct {
	processor.Config
	Selector controller.Selector // as in controller.Listener
	// Resync is how often the listener is sent a Synced of every object; 0 for never.
	Resync   time.Duration
	Progress time.Duration // as in controller.Listener
}

// Stages is the part of an informer between its FIFO and the publishers.
type Stages struct {
	cfg        StagesConfig
	log        *changelog.Log
	controller *controller.Controller
	listeners  []*processor.Listener
	gaps       *metric.Counters
	decided    chan struct{} // closed when the controller has ended
}

// NewStages checks the configuration and starts nothing.
func NewStages(cfg StagesConfig) (*Stages, error) {
	switch {
	case cfg.FIFO == nil || cfg.Indexer == nil || cfg.Committer == nil:
		return nil, fmt.Errorf("informer %s: fifo, indexer and committer are required", cfg.Name)
	case len(cfg.Listeners) == 0 || len(cfg.Listeners) > 64:
		return nil, fmt.Errorf("informer %s: %d sinks; there must be 1 to 64", cfg.Name,
			len(cfg.Listeners))
	case cfg.ChangeLog.DropOldest && slices.ContainsFunc(cfg.Listeners,
		func(l ListenerConfig) bool { return l.Latest }):
		return nil, fmt.Errorf("informer %s: the oldest can't be dropped where a sink gets the newest "+
			"states only: what it has read ahead lies there", cfg.Name)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stages{cfg: cfg, gaps: controller.NewGaps(cfg.Registerer), decided: make(chan struct{})}
	for _, step := range []func() error{s.openLog, s.addController, s.addListeners} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("informer %s: %w", cfg.Name, err)
		}
	}
	return s, nil
}

func (s *Stages) openLog() (err error) {
	cfg := s.cfg.ChangeLog
	cfg.Indexer, cfg.Type, cfg.Committer = s.cfg.Indexer, s.cfg.Type, s.cfg.Committer
	cfg.Log, cfg.Registerer = s.cfg.Log, s.cfg.Registerer
	for n := range s.cfg.Listeners {
		cfg.Listeners = append(cfg.Listeners, s.cfg.Listeners[n].Name)
	}
	s.log, err = changelog.Open(cfg)
	return err
}

func (s *Stages) addController() (err error) {
	env := controller.Env{
		FIFO: s.cfg.FIFO, Indexer: s.cfg.Indexer, Log: s.log, Gaps: s.gaps, Logger: s.cfg.Log,
		Registerer: s.cfg.Registerer,
	}
	for _, l := range s.cfg.Listeners {
		env.Listeners = append(env.Listeners, controller.Listener{
			Name: l.Name, Selector: l.Selector, NeedsOld: l.Maker.NeedsOld(), Omits: l.Maker.Omits(),
			Progress: l.Progress,
		})
	}
	s.controller, err = controller.New(s.cfg.Config, env)
	return err
}

func (s *Stages) addListeners() error {
	env := processor.Env{
		Log: s.log, Indexer: s.cfg.Indexer, Type: s.cfg.Type, Shard: s.cfg.Shard,
		Selection: s.cfg.Selection, SeenSince: s.controller.SeenSince,
		HoldsEarlierRun: s.cfg.HoldsEarlierRun, Gaps: s.gaps, Logger: s.cfg.Log,
		Registerer: s.cfg.Registerer,
	}
	for n, cfg := range s.cfg.Listeners {
		l, err := processor.New(cfg.Config, env, n)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// Follow sets what the leader has delivered to the n-th listener's sink; see processor.Listener.
func (s *Stages) Follow(n int, progress standby.Unit, ended bool) {
	s.listeners[n].Follow(progress, ended)
}

// Lead makes all listeners send everything that the leader before has not delivered.
func (s *Stages) Lead() {
	for _, l := range s.listeners {
		l.Lead()
	}
}

// Log returns the log, which the Committer has to track from before Run until after End.
func (s *Stages) Log() *changelog.Log { return s.log }

// Run works until the FIFO is closed and all its changes are settled, then returns nil; or until
// ctx ends, or something fails that only a restart of the informer can repair (the state database).
// End follows, where another informer is to continue with the state in the same process.
func (s *Stages) Run(ctx context.Context) error {
	for _, l := range s.listeners {
		if err := l.Prepare(); err != nil {
			return fmt.Errorf("informer %s: %w", s.cfg.Name, err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	resync, stopResync := context.WithCancel(ctx)
	defer stopResync()
	var listening sync.WaitGroup
	for n, l := range s.listeners {
		listening.Add(1)
		l.Start(ctx, func(err error) {
			defer listening.Done()
			if err != nil {
				g.Go(func() error { return err }) // ends the others
			}
		})
		if every := s.cfg.Listeners[n].Resync; every > 0 {
			g.Go(func() error { return s.resync(resync, every, 1<<n) })
		}
	}
	// The controller has no goroutine of its own: with "*" there are hundreds of informers.
	err := s.controller.Run(ctx)
	close(s.decided)
	stopResync()
	if err != nil {
		g.Go(func() error { return fmt.Errorf("informer %s: %w", s.cfg.Name, err) }) // ends the others
	}
	listening.Wait()
	s.log.EndSpooling()
	return g.Wait()
}

// resync queues a Sync of every object for a listener, each period, until ctx ends. The round is
// the number of the period, so that it is the same for every replica.
func (s *Stages) resync(ctx context.Context, every time.Duration, bit changelog.Listeners) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var round int64
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			round = now.UnixNano() / int64(every)
		}
		if !s.HasSynced() {
			continue
		}
		for item, err := range s.cfg.Indexer.All() {
			if err != nil {
				return fmt.Errorf("resync %s: %w", s.cfg.Name, err)
			}
			if err := s.cfg.FIFO.Resync(ctx, item.Key, uint64(bit), round, s.controller.Newest()); err != nil {
				if ctx.Err() != nil || errors.Is(err, deltafifo.ErrClosed) {
					return nil
				}
				return err
			}
		}
	}
}

// IsClean reports whether every event ever sent is known: the run before has ended in order, or
// this one has read from the API server what it sent last.
func (s *Stages) IsClean() bool { return s.controller.IsClean() }

// SeenSince returns the version since which the informer has seen everything, in an epoch of the
// server's history. ok is false during a list, and before the first.
func (s *Stages) SeenSince() (from resource.Version, epoch int, ok bool) {
	return s.controller.SeenSince()
}

// HasSynced reports whether the first population was applied: everything of the first list is in
// the log.
func (s *Stages) HasSynced() bool { return s.cfg.FIFO.HasSynced() }

// StagesStatus is the status of the log and the listeners.
type StagesStatus struct {
	Log changelog.Status
	// Gaps reported since the start, by reason.
	Gaps      map[string]int
	Listeners []processor.Status
}

// Status returns what is pending.
func (s *Stages) Status() StagesStatus {
	status := StagesStatus{Log: s.log.Status(), Gaps: s.gaps.Counts()}
	for _, l := range s.listeners {
		status.Listeners = append(status.Listeners, l.Status())
	}
	return status
}

// detachPatience is how long End waits for the calls of a sink that hold events of this informer.
const detachPatience = time.Second

// Decided is closed when everything that the FIFO had when it was closed is in the log.
func (s *Stages) Decided() <-chan struct{} { return s.decided }

// End takes back the events that the listeners have added to their publishers, and stages
// everything unsettled for the log on disk. The commit that follows makes that durable, with the
// cursors. So another informer continues with the state, and sends nothing twice, even while a sink
// is unavailable. Run has returned. After an error some of it is not on disk: it is read again, and
// may be sent twice. A second call does nothing.
func (s *Stages) End() error {
	ctx, cancel := context.WithTimeout(context.Background(), detachPatience)
	defer cancel()
	for _, l := range s.listeners {
		l.Detach(ctx)
	}
	if err := s.log.Stage(time.Now()); err != nil {
		return fmt.Errorf("informer %s: put what is pending on disk: %w", s.cfg.Name, err)
	}
	return nil
}
