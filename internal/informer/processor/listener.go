package processor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
)

// Listener makes events of the entries that a cursor reads, and adds them to its publisher.
type Listener struct {
	cfg        Config
	env        Env
	cursor     *changelog.Cursor
	collapsed  *metric.Counter
	epochs     int                // added to the epoch of each change; owned by run
	unacked    []*changelog.Entry // pending since a run before; owned by run
	leftByStep []*changelog.Entry // read by the step, and left to run; owned by both in turns
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

// age is how long ago something was; 0 for never.
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
}

// Status says what one listener has with its publisher.
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
}

// Status may be called concurrently.
func (l *Listener) Status() Status {
	return Status{
		Sink: l.cfg.Name, InFlight: l.inFlight(), Dropped: l.cursor.Dropped(), Oldest: l.oldest(),
		Held: l.held(),
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
