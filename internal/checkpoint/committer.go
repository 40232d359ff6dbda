package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/store"
)

// Config of a Committer. Zero values mean the documented default.
type Config struct {
	// DB is the state database; required.
	DB *store.DB
	// Interval between commits while something waits; default 200 ms.
	Interval time.Duration
	// Every so many settled objects of one informer a commit comes early; default 1,000.
	Every int
	Log   *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// Committer writes what the trackers of all informers have settled, in one atomic batch at a time. All informers share the
// fsync of a commit.
type Committer struct {
	cfg     Config
	metrics *metrics
	wake    chan struct{}

	turn chan struct{} // holds one token: whoever has it commits

	mu       sync.Mutex
	trackers []*Tracker
	sinks    []*sink
	err      error // of the last commit
}

// New makes a Committer without trackers.
func New(cfg Config) (*Committer, error) {
	if cfg.DB == nil {
		return nil, errors.New("checkpoint: a state database is required")
	}
	cfg.Interval = cmp.Or(cfg.Interval, 200*time.Millisecond)
	cfg.Every = cmp.Or(cfg.Every, 1000)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Committer{cfg: cfg, metrics: newMetrics(cfg.Registerer), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c, nil
}

// Track begins to follow one informer, from its saved position.
func (c *Committer) Track(ix *store.Indexer) (*Tracker, error) {
	pos, err := ix.Position()
	if err != nil {
		return nil, err
	}
	t := c.newTracker(ix, pos.Version)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trackers = append(c.trackers, t)
	return t, nil
}

// Untrack ends it: what is settled by then is committed, what settles later is not. After an error it is tracked still.
func (c *Committer) Untrack(t *Tracker) error {
	if err := c.Commit(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trackers = slices.DeleteFunc(c.trackers, func(other *Tracker) bool { return other == t })
	return nil
}

func (c *Committer) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // it is awake
	}
}

// Run commits until ctx ends, and once more then. A commit that fails is tried again: nothing is lost by waiting, and Err says
// so meanwhile.
func (c *Committer) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.Commit()
		case <-tick.C:
		case <-c.wake:
		}
		if err := c.Commit(); err != nil && !errors.Is(err, store.ErrUnavailable) { // of which the database tells, once
			c.cfg.Log.Error("commit failed, will be tried again", "err", err)
		}
	}
}

// Commit writes what is settled now. When it returns nil that is durable.
func (c *Committer) Commit() error {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	c.mu.Lock()
	trackers, sinks := slices.Clone(c.trackers), slices.Clone(c.sinks)
	c.mu.Unlock()

	start := time.Now()
	batch := c.cfg.DB.NewBatch()
	for _, s := range sinks {
		s.write(batch)
	}
	work := make([]taken, len(trackers))
	objects := 0
	for i, t := range trackers {
		work[i] = t.take()
		objects += len(work[i].settled)
		t.write(batch, &work[i])
	}
	empty, bytes := batch.Empty(), batch.Len()
	err := batch.Commit()
	for _, s := range sinks {
		s.committed(err)
	}
	for i, t := range trackers {
		if err != nil {
			t.putBack(work[i])
		} else {
			t.committedAs(work[i])
		}
	}
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	if !empty {
		c.metrics.committed(objects, bytes, time.Since(start), err)
	}
	return err
}

// write puts a tracker's share into a batch. The position comes first, as Batch asks.
func (t *Tracker) write(batch *store.Batch, w *taken) {
	switch {
	case w.watermark != "":
		w.passed = batch.SetPosition(t.indexer, w.watermark)
	case w.passed:
		w.passed = batch.DropPassed(t.indexer, w.committedAt)
	}
	if w.listed {
		batch.EndEpoch(t.indexer)
	}
	for _, body := range w.bodies {
		batch.CatchUp(t.indexer, body)
	}
	for key, s := range w.settled {
		batch.Settle(t.indexer, key, s)
	}
	for _, e := range w.spooled {
		batch.AppendLog(t.indexer, e)
	}
	for _, n := range w.notes {
		n.write(batch)
	}
	if w.journal != nil {
		w.committed = w.journal.Write(batch, w.spooled)
	}
}

// Err is the error of the last commit, nil when it succeeded.
func (c *Committer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
