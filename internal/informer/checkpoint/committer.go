// Package checkpoint commits what the logs of all informers have settled.
//
// In come logs (Track), each of which hands out its settled part (changelog.Log.Checkpoint), and
// sinks (AddSink), each of which reports where its own log has to be read from. Out goes one atomic
// batch at a time to the state database, for all of them: the last settled version of each object
// and the watermark, together.
//
// The watermark is the version up to which everything is settled, and beyond which something was
// seen; internal/informer/changelog has the rules. States settled ahead of the watermark are in the
// batch too, so that a replay from the watermark skips them.
//
// Blocking: Commit waits for the disk. A Committer commits on the goroutine of Run, and on those
// that call Commit. The bridge starts Run before the informers and stops it after them.
package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Config of a Committer. Zero values mean the documented default.
type Config struct {
	// DB is the state database; required.
	DB *store.DB
	// Interval between commits while something waits; default 200 ms.
	Interval time.Duration
	Log      *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// Committer writes what the logs of all informers have settled, in one atomic batch at a time. All
// informers share the fsync of a commit.
type Committer struct {
	cfg           Config
	metrics       *metrics
	wake          chan struct{} // of one slot: commit now
	changed       atomic.Bool   // since the last commit began
	changedSignal chan struct{} // of one slot: changed was set

	committing *semaphore.Weighted // of 1: its holder commits

	mu    sync.Mutex
	logs  []*changelog.Log
	sinks []*positionedSink
	err   error // of the last commit
}

// New makes a Committer without logs.
func New(cfg Config) (*Committer, error) {
	if cfg.DB == nil {
		return nil, errors.New("checkpoint: a state database is required")
	}
	cfg.Interval = cmp.Or(cfg.Interval, 200*time.Millisecond)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Committer{
		cfg: cfg, metrics: newMetrics(cfg.Registerer),
		wake: make(chan struct{}, 1), changedSignal: make(chan struct{}, 1),
		committing: semaphore.NewWeighted(1),
	}
	return c, nil
}

// Track begins to commit a log. The first commit comes at once: an index may have to be built.
func (c *Committer) Track(l *changelog.Log) {
	c.mu.Lock()
	c.logs = append(c.logs, l)
	c.mu.Unlock()
	c.Changed()
}

// Untrack commits what is settled in a log, and stops committing it. After an error the log is
// still tracked.
func (c *Committer) Untrack(l *changelog.Log) error {
	if err := c.Commit(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = slices.DeleteFunc(c.logs, func(other *changelog.Log) bool { return other == l })
	return nil
}

// AddSink saves a sink's position with each commit from now on.
func (c *Committer) AddSink(name string, source Positioned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = append(c.sinks, &positionedSink{name: name, source: source})
}

// RemoveSink commits the sink's current position, and stops saving it. After an error the sink is
// still there.
func (c *Committer) RemoveSink(name string) error {
	if err := c.Commit(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = slices.DeleteFunc(slices.Clone(c.sinks), func(s *positionedSink) bool { return s.name == name })
	return nil
}

// Changed reports that there is something to commit.
func (c *Committer) Changed() {
	if c.changed.Load() || c.changed.Swap(true) {
		return
	}
	select {
	case c.changedSignal <- struct{}{}:
	default: // it is
	}
}

// Wake makes the next commit come early.
func (c *Committer) Wake() {
	select {
	case c.wake <- struct{}{}:
	default: // it is awake
	}
}

// Run commits until ctx ends, and once more then. It sleeps while nothing changes. A commit that
// fails is tried again: nothing is lost by waiting, and Err returns its error meanwhile.
func (c *Committer) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.commitLast()
		case <-tick.C:
		case <-c.wake:
		}
		empty, err := c.commit()
		// ErrUnavailable is reported by the database, once.
		if err != nil && !errors.Is(err, statedb.ErrUnavailable) {
			c.cfg.Log.Error("commit failed, will be tried again", "err", err)
		}
		if !empty || err != nil || c.changed.Load() {
			continue
		}
		tick.Stop()
		select {
		case <-ctx.Done():
			return c.commitLast()
		case <-c.changedSignal:
		}
		tick.Reset(c.cfg.Interval)
	}
}

// lastPatience is how long the last commit waits for a disk that is full, and perhaps was.
const lastPatience = 2 * time.Second

// commitLast commits what can't be tried again. A disk that takes writes again is noticed within a
// second, and writes a commit that was abandoned first.
func (c *Committer) commitLast() error {
	ctx, cancel := context.WithTimeout(context.Background(), lastPatience)
	defer cancel()
	_ = c.cfg.DB.Database().WaitAvailable(ctx) // else Commit says why
	return c.Commit()
}

// Commit writes what is settled now. When it returns nil that is durable.
func (c *Committer) Commit() error {
	_, err := c.commit()
	return err
}

// commit is Commit. It also reports whether there was nothing to commit.
func (c *Committer) commit() (empty bool, err error) {
	if err := c.committing.Acquire(context.Background(), 1); err != nil {
		return false, err // this context does not end
	}
	defer c.committing.Release(1)
	c.changed.Store(false)
	c.mu.Lock()
	logs, sinks := slices.Clone(c.logs), slices.Clone(c.sinks)
	c.mu.Unlock()

	start := time.Now()
	batch := c.cfg.DB.NewBatch()
	for _, s := range sinks {
		s.write(batch)
	}
	checkpoints := make([]*changelog.Checkpoint, len(logs))
	objects := 0
	for i, l := range logs {
		checkpoints[i] = l.Checkpoint()
		objects += checkpoints[i].Objects()
		checkpoints[i].Write(batch)
	}
	empty, bytes := batch.Empty(), batch.Len()
	err = batch.Commit()
	for _, s := range sinks {
		s.committed(err)
	}
	for i, l := range logs {
		l.Committed(checkpoints[i], err)
	}
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	if err != nil {
		c.Changed() // it is all still to commit
	}
	if !empty {
		c.metrics.committed(objects, bytes, time.Since(start), err)
	}
	return empty, err
}

// Err returns the error of the last commit, nil when it succeeded.
func (c *Committer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Positioned reports how a restart finds the messages of a sink that no checkpoint covers:
// *publisher.Publisher.
type Positioned interface {
	// Position returns where the sink's log has to be read from. nil leaves the saved position as
	// it is.
	Position() []byte
	// ReadBackIDs returns the ids of messages before that position which no checkpoint may cover
	// either. Each result is a slice that does not change.
	ReadBackIDs() []byte
}

// positionedSink is a sink whose position goes with each commit. The goroutine that commits owns
// its fields.
type positionedSink struct {
	name   string
	source Positioned
	saved  sinkPosition
	taken  sinkPosition // by the commit in progress
}

type sinkPosition struct{ position, readBackIDs []byte }

// write puts changes of the position into a batch. Call it before the logs hand out what is
// settled: everything that the position has passed was settled before Position was called. So it is
// in this commit or an earlier one.
func (s *positionedSink) write(batch *store.Batch) {
	s.taken = s.saved
	position := s.source.Position()
	if position == nil {
		return
	}
	first := s.saved.position == nil
	s.taken = sinkPosition{position, s.source.ReadBackIDs()}
	if !bytes.Equal(s.taken.position, s.saved.position) {
		batch.SetSinkPosition(s.name, s.taken.position)
	}
	if first || !bytes.Equal(s.taken.readBackIDs, s.saved.readBackIDs) {
		batch.SetSinkReadBack(s.name, s.taken.readBackIDs)
	}
}

// committed records what the commit has saved.
func (s *positionedSink) committed(err error) {
	if err == nil {
		s.saved = s.taken
	}
}

type metrics struct {
	commits *metric.Counters
	objects *metric.Counter
	bytes   *metric.Counter
	seconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := metric.With(reg)
	return &metrics{
		commits: m.Counters("bridge_checkpoint_commits_total",
			"Commits to the state database, by outcome.",
			"outcome", "ok", "failed"),
		objects: m.Counter("bridge_checkpoint_objects_total", "Settled objects written."),
		bytes: m.Counter("bridge_checkpoint_written_bytes_total",
			"Bytes of commits handed to the state database."),
		seconds: m.Histogram("bridge_checkpoint_commit_seconds",
			"Time a commit takes, the fsync included.",
			prometheus.ExponentialBuckets(0.0005, 4, 8)),
	}
}

func (m *metrics) committed(objects, bytes int, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.commits.With(outcome).Inc()
	m.objects.Add(float64(objects))
	m.bytes.Add(float64(bytes))
	m.seconds.Observe(took.Seconds())
}
