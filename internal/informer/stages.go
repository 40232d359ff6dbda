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
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// FIFO is where the controller pops from, and what resyncs are put into: *deltafifo.FIFO.
type FIFO interface {
	controller.Queue
	Resync(ctx context.Context, key resource.Key, listeners uint64, round int64, after uint64) error
	Snapshot(ctx context.Context, key resource.Key, listeners uint64, round int64) error
	HasSynced() bool
}

// StagesConfig of an Informer.
type StagesConfig struct {
	// Name of the informer's unit, for logs and errors.
	Name string
	Type resource.Type
	// Shard is the share of the objects that the informer is of.
	Shard   resource.Shard
	FIFO    FIFO
	Indexer *store.Indexer
	// Committer commits the Log, once it tracks that.
	Committer changelog.Committer
	// Listeners, at least one and at most 64.
	Listeners []ListenerConfig
	// LogBytes is how much the change log holds in memory; default 16 MiB.
	LogBytes int
	// LogAccount bounds that together with what other queues hold; nil for LogBytes alone.
	LogAccount *ratelimit.Account
	// Spooler writes changes that have waited for their sinks to the log on disk; nil for none.
	Spooler *changelog.Spooler
	// SpoolBytes is how much the log may hold on disk; default 10 GiB. When that is reached,
	// reading stops. Negative: a full memory stops reading.
	SpoolBytes int64
	// DropOldest drops the oldest changes on disk when SpoolBytes is reached, instead of stopping
	// to read. Each listener that had not read them is sent a gap event in their place.
	DropOldest bool
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

// Stages is the part of the pipeline between a FIFO and the publishers.
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
	case cfg.DropOldest && slices.ContainsFunc(cfg.Listeners,
		func(l ListenerConfig) bool { return l.Latest }):
		return nil, fmt.Errorf("informer %s: the oldest can't be dropped where a sink gets the newest "+
			"states only: what it has read ahead lies there", cfg.Name)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	i := &Stages{cfg: cfg, gaps: controller.NewGaps(cfg.Registerer), decided: make(chan struct{})}
	for _, step := range []func() error{i.openLog, i.addController, i.addListeners} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("informer %s: %w", cfg.Name, err)
		}
	}
	return i, nil
}

func (i *Stages) openLog() (err error) {
	names := make([]string, len(i.cfg.Listeners))
	for n := range names {
		names[n] = i.cfg.Listeners[n].Name
	}
	i.log, err = changelog.Open(changelog.Config{
		Indexer: i.cfg.Indexer, Type: i.cfg.Type, Committer: i.cfg.Committer, Listeners: names,
		MemoryBytes: i.cfg.LogBytes, Account: i.cfg.LogAccount, Spooler: i.cfg.Spooler, SpoolBytes: i.cfg.SpoolBytes,
		DropOldest: i.cfg.DropOldest, Log: i.cfg.Log, Registerer: i.cfg.Registerer,
	})
	return err
}

func (i *Stages) addController() (err error) {
	env := controller.Env{
		FIFO: i.cfg.FIFO, Indexer: i.cfg.Indexer, Log: i.log, Gaps: i.gaps, Logger: i.cfg.Log,
		Registerer: i.cfg.Registerer,
	}
	for _, l := range i.cfg.Listeners {
		env.Listeners = append(env.Listeners, controller.Listener{
			Name: l.Name, Selector: l.Selector, NeedsOld: l.Maker.NeedsOld(), Omits: l.Maker.Omits(),
			Progress: l.Progress,
		})
	}
	i.controller, err = controller.New(i.cfg.Config, env)
	return err
}

func (i *Stages) addListeners() error {
	env := processor.Env{
		Log: i.log, Indexer: i.cfg.Indexer, Type: i.cfg.Type, Shard: i.cfg.Shard,
		Selection: i.cfg.Selection, SeenSince: i.controller.SeenSince, HoldsEarlierRun: i.cfg.HoldsEarlierRun, Gaps: i.gaps,
		Logger: i.cfg.Log, Registerer: i.cfg.Registerer,
	}
	for n, cfg := range i.cfg.Listeners {
		l, err := processor.New(cfg.Config, env, n)
		if err != nil {
			return err
		}
		i.listeners = append(i.listeners, l)
	}
	return nil
}

// Follow sets what the leader has delivered to the n-th listener's sink; see processor.Listener.
func (i *Stages) Follow(n int, progress standby.Unit, ended bool) {
	i.listeners[n].Follow(progress, ended)
}

// Lead has all listeners send what the leader before has not delivered.
func (i *Stages) Lead() {
	for _, l := range i.listeners {
		l.Lead()
	}
}

// Log is what the Committer has to track, from before Run until after End.
func (i *Stages) Log() *changelog.Log { return i.log }

// Run works until the FIFO is closed and everything that came of it is settled, then returns nil;
// or until ctx ends, or something fails that only a restart of the informer can heal (the state
// database). End follows, where another informer is to continue with its state in the same process.
func (i *Stages) Run(ctx context.Context) error {
	for _, l := range i.listeners {
		if err := l.Prepare(); err != nil {
			return fmt.Errorf("informer %s: %w", i.cfg.Name, err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	resync, stopResync := context.WithCancel(ctx)
	defer stopResync()
	var listening sync.WaitGroup
	for n, l := range i.listeners {
		listening.Add(1)
		l.Start(ctx, func(err error) {
			defer listening.Done()
			if err != nil {
				g.Go(func() error { return err }) // ends the others
			}
		})
		if every := i.cfg.Listeners[n].Resync; every > 0 {
			g.Go(func() error { return i.resync(resync, every, 1<<n) })
		}
	}
	// The controller has no goroutine of its own: with "*" there are hundreds of informers.
	err := i.controller.Run(ctx)
	close(i.decided)
	stopResync()
	if err != nil {
		g.Go(func() error { return fmt.Errorf("informer %s: %w", i.cfg.Name, err) }) // ends the others
	}
	listening.Wait()
	i.log.EndSpooling()
	return g.Wait()
}

// resync queues a Sync of every object for a listener, each period, until ctx ends. The round is
// the number of the period, so that it is the same for every replica.
func (i *Stages) resync(ctx context.Context, every time.Duration, bit changelog.Listeners) error {
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
		if !i.HasSynced() {
			continue
		}
		for item, err := range i.cfg.Indexer.All() {
			if err != nil {
				return fmt.Errorf("resync %s: %w", i.cfg.Name, err)
			}
			if err := i.cfg.FIFO.Resync(ctx, item.Key, uint64(bit), round, i.controller.Newest()); err != nil {
				if ctx.Err() != nil || errors.Is(err, deltafifo.ErrClosed) {
					return nil
				}
				return err
			}
		}
	}
}

// IsClean reports whether everything that was ever sent is known: the run before has ended in
// order, or this one has heard from the API server what it sent last.
func (i *Stages) IsClean() bool { return i.controller.IsClean() }

// SeenSince is the version since which the informer has seen everything, in an epoch of the server's
// history. ok is false while a list is under way, and before the first.
func (i *Stages) SeenSince() (from resource.Version, epoch int, ok bool) {
	return i.controller.SeenSince()
}

// HasSynced reports whether the first population was applied: everything of the first list has been
// handed to the listeners' log.
func (i *Stages) HasSynced() bool { return i.cfg.FIFO.HasSynced() }

// StagesStatus of the informer's log and listeners.
type StagesStatus struct {
	Log changelog.Status
	// Gaps reported since the start, by reason.
	Gaps      map[string]int
	Listeners []processor.Status
}

// Status says what is pending.
func (i *Stages) Status() StagesStatus {
	s := StagesStatus{Log: i.log.Status(), Gaps: i.gaps.Counts()}
	for _, l := range i.listeners {
		s.Listeners = append(s.Listeners, l.Status())
	}
	return s
}

// An informer can be ended while its sinks are unavailable, and another continue with its state,
// without anything coming twice. What is not acknowledged belongs to the cursor of its listener: it
// is taken back from the publisher and lies in the log on disk, and the next listener adds it
// again.

// detachPatience is how long End waits for the calls of a sink that hold something of this
// informer.
const detachPatience = time.Second

// Decided is closed when everything that the FIFO had when it was closed is in the log.
func (i *Stages) Decided() <-chan struct{} { return i.decided }

// End takes back what the listeners have added to their publishers, and gives everything that is
// not settled to the log on disk. The commit that follows makes that durable, with the cursors. Run
// has returned. After an error some of it is not on disk: it is read again, and may be sent twice.
// A second call does nothing.
func (i *Stages) End() error {
	ctx, cancel := context.WithTimeout(context.Background(), detachPatience)
	defer cancel()
	for _, l := range i.listeners {
		l.Detach(ctx)
	}
	if err := i.log.Stage(time.Now()); err != nil {
		return fmt.Errorf("informer %s: put what is pending on disk: %w", i.cfg.Name, err)
	}
	return nil
}
