package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Queue is where the controller pops from: *deltafifo.FIFO.
type Queue interface {
	Pop(ctx context.Context, p deltafifo.Processor) error
	Resync(ctx context.Context, key resource.Key, listeners uint64, round int64, after uint64) error
	Snapshot(ctx context.Context, key resource.Key, listeners uint64, round int64) error
	HasSynced() bool
}

// Publisher takes a listener's events, and gives back what is not settled: *publisher.Publisher.
type Publisher interface {
	Add(ctx context.Context, items []*publisher.Item) error
	// TryAdd takes all items, or none. It never waits.
	TryAdd(items []*publisher.Item) bool
	Detach(ctx context.Context, s publisher.Settler) (tried []*publisher.Item)
}

// Config of an Informer.
type Config struct {
	// Name of the informer's unit, for logs and errors.
	Name string
	Type resource.Type
	// Shard is the share of the objects that the informer is of.
	Shard   resource.Shard
	FIFO    Queue
	Indexer *store.Indexer
	// Committer commits the Log, once it tracks that.
	Committer changelog.Committer
	// Listeners, at least one and at most 64.
	Listeners []ListenerConfig
	// LogBytes is how much the change log holds in memory; default 16 MiB.
	LogBytes int
	// SpoolAfter is how long a change may wait for its sinks before it is written to the log on
	// disk; default 5 s.
	SpoolAfter time.Duration
	// SpoolBytes is how much the log may hold on disk; default 10 GiB. When that is reached,
	// reading stops. Negative: a full memory stops reading.
	SpoolBytes int64
	// DropOldest drops the oldest changes on disk when SpoolBytes is reached, instead of stopping
	// to read. Each listener that had not read them is told by a gap event in their place.
	DropOldest bool
	// Selector decides for all listeners which changes are sent; nil for all changes.
	Selector Selector
	// Namespaces says that the stream is of selected namespaces.
	Namespaces bool
	// Selection gives the version of the last change of the selected namespaces that the stream may
	// know of; nil where none are selected.
	Selection func() resource.Version
	// Selective says that the stream is of what a selector selects, so that deletes bear their
	// cause where it can be told. Leavable, that the API server evaluates one that an object may
	// leave: then it tells of that as of a delete.
	Selective, Leavable bool
	// Enterable says that objects are selected here, by what they are at a time, and all that were
	// selected before are known: one that is updated, and was not known, has come in.
	Enterable bool
	// Owners gives an object's controller, that one's, and so on, for the events; nil when they are
	// not asked for.
	Owners func(obj *resource.Object) []resource.Owner
	// OnDelete is called with the last state of an object before it is forgotten; nil for nothing.
	OnDelete func(obj *resource.Object)
	// Resnapshot publishes every object at the first list: what the settled state covers already as
	// Synced.
	Resnapshot bool
	// Unclean says that the run before this one may have sent what the settled state does not know.
	// If the server's history went back since, any object may have been sent in a state that is
	// undone, so all are published.
	Unclean bool
	// Succeeds reports whether other replicas have published before this one, and up to which
	// version of the server at least; "" for not known. A first list is a gap then, in which
	// objects may have been deleted. nil: there are none.
	Succeeds func() (from resource.Version, led bool)
	// Diverged is called when a list shows that the API server's history is another than the one
	// that was told, though its version is not lower: an object is in an older state than before. A
	// list with Rewound has to follow. It must not block. nil: nothing is done about it.
	Diverged func()
	// Forgotten reports which brokers hold events of an earlier run, of which nothing is known here
	// any more. It is asked before the first list, which waits for the answer. nil: there are none.
	Forgotten func(ctx context.Context) Forgotten
	// Holds is the same for one sink that was unavailable then. It waits until the sink is
	// available.
	Holds func(ctx context.Context, sink string) (holds bool, epoch int, err error)
	Log   *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// Forgotten says which brokers hold events of an earlier run.
type Forgotten struct {
	// Holding are the sinks, by name, whose brokers do. For them the first list is a gap, in which
	// objects may have been deleted.
	Holding []string
	// Epoch is the latest of these events. All that is sent from then on has a later one: else it
	// would be taken for what the brokers hold.
	Epoch int
	// Unasked are the sinks that are unavailable.
	Unasked []string
}

// ListenerConfig is one sink's binding to the informer.
type ListenerConfig struct {
	// Name of the sink.
	Name      string
	Publisher Publisher
	Maker     *event.Maker
	// Selector decides which changes are sent to this listener; nil for all that the informer's
	// lets through.
	Selector Selector
	// Window is how many events of this listener may be with the publisher at once; default 4,096.
	Window int
	// Resync is how often the listener is sent a Synced of every object; 0 for never.
	Resync time.Duration
	// Progress is how often at most the listener is told up to which version its stream is
	// complete; 0 for never.
	Progress time.Duration
	// Latest sends of the changes of an object that wait only the newest, with what the listener
	// was sent before as the old object. Not with DropOldest.
	Latest bool
	// Ahead is how many events to come a listener with Latest keeps in mind: what waits beyond
	// collapses only when it comes to it. Default 16,384.
	Ahead int
	// Run sets the messages of a listener with Latest apart from those of an earlier run that may
	// have sent what is not known here. Default: from those of all others.
	Run string

	// epochs are added to the epoch of each change: see outlive. Owned by run.
	epochs int
}

// Informer is the part of the pipeline between a FIFO and the publishers.
type Informer struct {
	cfg       Config
	log       *changelog.Log
	metrics   *metrics
	listeners []*listener
	needsOld  bool // some of them, or a selector, need the object before an update
	selects   bool // there is a selector
	selection selection
	scope     *scope
	logger    *slog.Logger
	decided   chan struct{} // closed when the controller has ended
	// unclean: an earlier run has sent what is not known here, and this one has seen neither a list
	// nor a bookmark.
	unclean atomic.Bool
	newest  atomic.Uint64 // number of the last change that was decided
	history history
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Informer, error) {
	switch {
	case cfg.FIFO == nil || cfg.Indexer == nil || cfg.Committer == nil:
		return nil, fmt.Errorf("informer %s: fifo, indexer and committer are required", cfg.Name)
	case len(cfg.Listeners) == 0 || len(cfg.Listeners) > 64:
		return nil, fmt.Errorf("informer %s: %d sinks; there must be 1 to 64", cfg.Name, len(cfg.Listeners))
	case cfg.DropOldest && slices.ContainsFunc(cfg.Listeners, func(l ListenerConfig) bool { return l.Latest }):
		return nil, fmt.Errorf("informer %s: the oldest can't be dropped where a sink gets the newest states only: what it has read ahead lies there", cfg.Name)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	i := &Informer{
		cfg: cfg, metrics: newMetrics(cfg.Registerer, cfg.Listeners), logger: cfg.Log,
		decided: make(chan struct{}),
	}
	if err := i.open(); err != nil {
		return nil, fmt.Errorf("informer %s: %w", cfg.Name, err)
	}
	for n, lc := range cfg.Listeners {
		i.listeners = append(i.listeners, newListener(lc, i, n))
		i.needsOld = i.needsOld || lc.Maker.NeedsOld()
		i.useSelector(lc.Selector)
	}
	i.selection.selector = cfg.Selector
	i.useSelector(cfg.Selector)
	for _, l := range i.listeners {
		var err error
		if l.cfg.epochs, err = cfg.Indexer.SinkEpochs(l.cfg.Name); err != nil {
			return nil, fmt.Errorf("informer %s: %w", cfg.Name, err)
		}
	}
	i.registerOldest(cfg.Registerer)
	i.unclean.Store(cfg.Unclean)
	return i, nil
}

// open opens the state.
func (i *Informer) open() error {
	namespaces, err := i.cfg.Indexer.Namespaces()
	if err != nil {
		return err
	}
	i.scope = newScope(namespaces)
	names := make([]string, len(i.cfg.Listeners))
	for n := range names {
		names[n] = i.cfg.Listeners[n].Name
	}
	i.log, err = changelog.Open(changelog.Config{
		Indexer: i.cfg.Indexer, Type: i.cfg.Type, Committer: i.cfg.Committer, Listeners: names,
		MemoryBytes: i.cfg.LogBytes, SpoolAfter: i.cfg.SpoolAfter, SpoolBytes: i.cfg.SpoolBytes,
		DropOldest: i.cfg.DropOldest, Log: i.cfg.Log, Registerer: i.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	return i.resume()
}

// Log is what the Committer has to track, from before Run until after End.
func (i *Informer) Log() *changelog.Log { return i.log }

// useSelector prepares for a selector, which may be nil.
func (i *Informer) useSelector(s Selector) {
	if s == nil {
		return
	}
	i.needsOld = i.needsOld || s.NeedsOld()
	i.selects = true
}

// Run works until the FIFO is closed and everything that came of it is settled, then returns nil;
// or until ctx ends, or something fails that only a restart of the informer can heal (the state
// database). End follows, where another informer is to go on with its state in the same process.
func (i *Informer) Run(ctx context.Context) error {
	for _, l := range i.listeners {
		if err := l.prepare(); err != nil {
			return fmt.Errorf("informer %s: %w", i.cfg.Name, err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	resync, stopResync := context.WithCancel(ctx)
	g.Go(func() error {
		defer close(i.decided)
		defer stopResync()
		return (&controller{informer: i, cfg: &i.cfg, log: i.log}).run(ctx)
	})
	aside, stopAside := context.WithCancel(ctx)
	var listening sync.WaitGroup
	for _, l := range i.listeners {
		listening.Add(1)
		g.Go(func() error {
			defer listening.Done()
			return l.run(ctx)
		})
		if l.cfg.Resync > 0 {
			g.Go(func() error { return i.resync(resync, l) })
		}
	}
	g.Go(func() error { return i.log.Run(aside) })
	g.Go(func() error {
		listening.Wait()
		stopAside()
		return nil
	})
	return g.Wait()
}

// resync queues a Sync of every object, each period, until ctx ends. The round is the number of the
// period, so that it is the same for every replica.
func (i *Informer) resync(ctx context.Context, l *listener) error {
	tick := time.NewTicker(l.cfg.Resync)
	defer tick.Stop()
	for {
		var round int64
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			round = now.UnixNano() / int64(l.cfg.Resync)
		}
		if !i.HasSynced() {
			continue
		}
		for item, err := range i.cfg.Indexer.All() {
			if err != nil {
				return fmt.Errorf("resync %s: %w", i.cfg.Name, err)
			}
			if err := i.cfg.FIFO.Resync(ctx, item.Key, uint64(l.bit), round, i.newest.Load()); err != nil {
				if ctx.Err() != nil || errors.Is(err, deltafifo.ErrClosed) {
					return nil
				}
				return err
			}
		}
	}
}

// Sure reports whether everything that was ever sent is known: the run before has ended in order,
// or this one has heard from the API server what it sent last.
func (i *Informer) Sure() bool { return !i.unclean.Load() }

// HasSynced reports whether the first population was applied: everything of the first list has been
// handed to the listeners' log.
func (i *Informer) HasSynced() bool { return i.cfg.FIFO.HasSynced() }

// Status of the informer's log and listeners.
type Status struct {
	Log changelog.Status
	// Gaps told since the start, by reason.
	Gaps      map[string]int
	Listeners []ListenerStatus
}

// ListenerStatus says what one listener has with its publisher.
type ListenerStatus struct {
	Sink     string
	InFlight int
	// Dropped counts events that this run dropped before the sink had them.
	Dropped int
	// Oldest is when the oldest change was observed that is with the publisher; zero when none is.
	Oldest time.Time
}

// Status says what waits.
func (i *Informer) Status() Status {
	s := Status{Log: i.log.Status(), Gaps: i.metrics.gapsTold()}
	for _, l := range i.listeners {
		s.Listeners = append(s.Listeners, ListenerStatus{
			Sink: l.cfg.Name, InFlight: l.inFlight(), Dropped: l.cursor.Dropped(), Oldest: l.oldest(),
		})
	}
	return s
}
