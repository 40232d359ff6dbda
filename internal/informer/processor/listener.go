package processor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Publisher takes a listener's events, and returns unsettled ones at Detach: *publisher.Publisher.
type Publisher interface {
	Add(ctx context.Context, items []*publisher.Item) error
	// TryAdd takes all items, or none. It never waits.
	TryAdd(items []*publisher.Item) bool
	Detach(ctx context.Context, s publisher.Settler) (tried []*publisher.Item)
}

// Config of a Listener. Zero values mean the documented default.
type Config struct {
	// Name of the sink.
	Name      string
	Publisher Publisher
	Maker     *event.Maker
	// Window bounds the events of this listener that the publisher has at once; default 4,096.
	Window int
	// Latest sends only the newest of an object's pending changes. Its old object is the state that
	// the listener was sent before. Not with changelog.Config's DropOldest.
	Latest bool
	// Ahead is how many pending events a listener with Latest remembers: later changes collapse
	// only when it reads them. Default 16,384.
	Ahead int
	// Follows is set where there are other replicas: the listener sends nothing until Lead.
	Follows bool
	// Run distinguishes the messages of a listener with Latest from those of an earlier run, which
	// may have sent unknown states. Default: a random one.
	Run string
}

// Env is what the listeners of an informer share.
type Env struct {
	// Log has a cursor for each listener.
	Log     *changelog.Log
	Indexer *store.Indexer
	Type    resource.Type
	// Shard is the share of the objects that this replica knows.
	Shard resource.Shard
	// Selection returns the version of the last change of the selected namespaces that the stream
	// may know of; nil where none are selected.
	Selection func() resource.Version
	// SeenSince returns the version since which everything was seen, in an epoch of the server's
	// history; ok is false during a list, and before the first. It is called with Follows only.
	SeenSince func() (from resource.Version, epoch int, ok bool)
	// HoldsEarlierRun reports whether a sink that was unavailable before has events of an earlier
	// run, and the epoch of the latest of them. It waits until the sink is available. nil: no entry
	// has AskBroker.
	HoldsEarlierRun func(ctx context.Context, sink string) (holds bool, epoch int, err error)
	// Gaps counts the gaps that only a listener knows of, by reason.
	Gaps   *metric.Counters
	Logger *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// Listener makes events of the entries that a cursor reads, and adds them to its publisher.
type Listener struct {
	cfg        Config
	env        Env
	cursor     *changelog.Cursor
	collapsed  *metric.Counter
	epochs     int                // added to the epoch of each change; owned by run
	unacked    []*changelog.Entry // pending since a run before; owned by run
	leftByStep []*changelog.Entry // read by the step, and left to run; owned by both in turns
	barriers   barriers
	// Of a listener with Latest only.
	unackedHeaders []changelog.Header // pending since a run before, not queued yet; owned by run
	wakeUps        atomic.Uint64      // counts calls of Settle, and what else may let more be sent
	awaiting       atomic.Bool        // a goroutine waits until the publisher's demand changes

	mu   sync.Mutex
	cond *sync.Cond // signalled when inflights become free
	// inflights are made as they are needed, up to the window; free are those that are not with the
	// publisher. An Item's Seq is the index of its inflight.
	inflights []*inflightEvent
	free      []*inflightEvent
	queue     *latestQueue // what was read ahead; nil without Latest
	leader    leaderView
}

// barriers are the entries about all objects that can't be sent in their order (passBarrier).
type barriers struct {
	// postponed are ends of lists and progress that stalled events are before, in order; owned by
	// run. hasPostponed is for Settle.
	postponed    []*changelog.Entry
	hasPostponed atomic.Bool
	lastAhead    changelog.Position // of the last gap that has passed postponed ones; owned by run
	// ahead is that gap, if this run has sent it; settled are the acks of all such gaps. Guarded by
	// Listener.mu.
	ahead   *changelog.Entry
	settled []changelog.Ack
}

// New makes the n-th listener of an informer's log. It starts nothing.
func New(cfg Config, env Env, n int) (*Listener, error) {
	cfg.Window = cmp.Or(cfg.Window, 4096)
	cfg.Run = cmp.Or(cfg.Run, rand.Text()[:8])
	l := &Listener{cfg: cfg, env: env, cursor: env.Log.Cursor(n)}
	l.cond = sync.NewCond(&l.mu)
	l.leader.standing.Leads = !cfg.Follows
	var err error
	if l.epochs, err = env.Indexer.Meta().SinkEpochs(cfg.Name); err != nil {
		return nil, fmt.Errorf("sink %s: %w", cfg.Name, err)
	}
	metrics := metric.WithLabel(env.Registerer, "sink", cfg.Name)
	if cfg.Latest {
		l.queue = newLatestQueue(cmp.Or(cfg.Ahead, 16<<10), cfg.Maker.NeedsOld())
		l.collapsed = metrics.Counter("bridge_informer_collapsed_total",
			"Changes that a sink with delivery latest was not sent, because a newer one of "+
				"the object waited too.")
	}
	metrics.GaugeFunc("bridge_informer_oldest_seconds",
		"How long ago the oldest change was observed that the sink has not acknowledged; 0 "+
			"when there is none.",
		func() float64 { return age(l.oldest()).Seconds() })
	return l, nil
}

// age returns the time since t; 0 for the zero time.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

// Prepare reads what a run before had passed on and not seen settled. Call it for all listeners
// before the log can drop anything.
func (l *Listener) Prepare() (err error) {
	if l.cfg.Latest {
		l.unackedHeaders, err = l.cursor.UnackedHeaders()
	} else {
		l.unacked, err = l.cursor.Unacked()
	}
	for _, e := range l.unacked {
		h := e.Header()
		l.findAhead(&h)
	}
	for i := range l.unackedHeaders {
		l.findAhead(&l.unackedHeaders[i])
	}
	return err
}

// Start passes entries on until the log ends and everything is settled, or ctx ends; then it calls
// ended, once. While another replica leads, it acks what that one has delivered. A listener that is
// sent every change has no goroutine while it has nothing to do.
func (l *Listener) Start(ctx context.Context, ended func(error)) { go l.run(ctx, ended) }

func (l *Listener) run(ctx context.Context, ended func(error)) {
	leads, err := l.follow(ctx)
	switch {
	case err != nil || !leads:
		ended(err)
	case l.cfg.Latest:
		ended(l.runLatest(ctx))
	default:
		l.runEvery(ctx, ended)
	}
}

// Detach takes back from the publisher what the listener has added; ctx bounds how long it waits
// for calls of the sink that hold some of it. What was added and is not settled stays pending in
// the cursor. The listener has ended.
func (l *Listener) Detach(ctx context.Context) {
	tried := l.cfg.Publisher.Detach(ctx, l)
	var positions []changelog.Position
	l.mu.Lock()
	for _, it := range tried {
		p := l.inflights[it.Seq]
		if p.first != nil {
			positions = append(positions, p.first.Position)
		}
		positions = append(positions, p.entry.Position)
	}
	l.mu.Unlock()
	l.cursor.Tried(positions)
	l.handOver()
	l.releaseAhead()
}

// Status is what one listener has with its publisher.
type Status struct {
	Sink     string
	InFlight int
	// Dropped counts events that this run dropped before the sink had them.
	Dropped int
	// Oldest is when the oldest change was observed that is with the publisher, or that the leader
	// has not delivered; zero for none.
	Oldest time.Time
	// Held is how many entries at most the leader has not delivered; 0 once this replica leads.
	Held int
	// Backlog is how many changes at most the sink has not acknowledged.
	Backlog int
}

// Status may be called concurrently.
func (l *Listener) Status() Status {
	return Status{
		Sink: l.cfg.Name, InFlight: l.inFlight(), Dropped: l.cursor.Dropped(), Oldest: l.oldest(),
		Held: l.held(), Backlog: l.cursor.Backlog(),
	}
}

// oldest is when the oldest change was observed that was read and is not settled; zero when there
// is none.
func (l *Listener) oldest() time.Time {
	oldest := l.cursor.Oldest()
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := l.leader.since; !since.IsZero() && (oldest.IsZero() || since.Before(oldest)) {
		oldest = since
	}
	if l.queue == nil {
		return oldest
	}
	for p := range l.queue.all() { // what has collapsed is settled, and counts
		if oldest.IsZero() || p.observed.Before(oldest) {
			oldest = p.observed
		}
	}
	return oldest
}
