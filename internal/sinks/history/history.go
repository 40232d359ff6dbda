// Package history is the sink that keeps every version of every object in a directory, which
// `bridge history` and its siblings answer from.
//
// It takes events from a publisher, in the order given (sinks.ByLane: all events are one lane), and
// stores each batch in one durable step. An event that comes again is stored once, by its sequence:
// nothing needs to be read back after a crash. A full disk delays this sink and no other.
//
// One process writes to a directory. Retention runs in the background (package history).
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Config is the section `history` of a sink.
//
// History keeps every version of every object in a directory. Feed it with `payload: object`, the
// default.
type Config struct {
	// Dir is the directory, which one process writes to. Left out: the directory `history` in
	// `state.dir`.
	Dir string `yaml:"dir"`
	// Retention is how long versions are kept. Of an object that existed then, the last version
	// before is kept too, so that the state at that time is complete. 0: forever.
	Retention time.Duration `yaml:"retention" default:"720h"`
	// MaxBytes bounds the directory: when it is larger, the oldest versions go. 0: half of its
	// volume. They go too when less than 1 GiB (or an eighth) of the volume is left, and nothing is
	// stored below half of that, so that the state directory has room.
	MaxBytes settings.Size `yaml:"maxBytes" default:"0"`
	// Audit records who made changes. Left out: nothing is recorded.
	Audit *audit.Config `yaml:"audit"`
}

var _ interface {
	sinks.Section
	sinks.OwnEncoder
} = (*Config)(nil)

// Validate reports what is wrong with the keys. Where there is no state directory, config requires
// the key dir.
func (c *Config) Validate(ps *settings.Report, path string) { c.Audit.Validate(ps, path+".audit") }

// OwnEncoding is that of the database.
func (*Config) OwnEncoding() string { return "history, which stores attributes and data" }

// New makes the sink.
func (c *Config) New(_ sinks.Common, env *sinks.Env) (sinks.Sink, sinks.Service, error) {
	o := Options{Config: *c, Env: *env}
	if c.Dir == "" {
		o.Dir = DefaultDir(env.StateDir)
		env.Log.Info("every version of every object is kept", "dir", o.Dir, "ask",
			"bridge history KIND/NAME; bridge timeline")
	}
	sink, err := New(o)
	return sink, nil, err
}

// DefaultDir is the directory of a history whose section names none.
func DefaultDir(stateDir string) string { return filepath.Join(stateDir, "history") }

// Places are the directory, and where audit events come from.
func (c *Config) Places() []string {
	places := []string{"history " + c.Dir}
	if c.Audit != nil {
		for _, from := range append(slices.Clip(c.Audit.Files), c.Audit.Address) {
			places = append(places, "audit log "+from)
		}
		for _, s := range c.Audit.Streams {
			places = append(places, "audit log "+s.From+" "+s.Sink)
		}
	}
	return places
}

// Form is that of a structured event.
func (c *Config) Form(common sinks.Common) (sinks.Form, error) {
	return sinks.Form{
		Encoding: sinks.Structured,
		Destination: func(*event.Event) string {
			return "sink " + common.Name + ": history " + c.Dir
		},
	}, nil
}

// Describe is nil: nobody reads events from a history.
func (*Config) Describe() *asyncapi.Sink { return nil }

// Options of a Sink.
type Options struct {
	Config
	sinks.Env
	// Patience is how long a batch waits for a disk that takes no writes; default 5 s.
	Patience time.Duration
	// FS replaces the file system, and Now the machine's clock, for tests of their faults.
	FS  vfs.FS
	Now func() time.Time
}

// lane is the only one: a directory has one writer.
const lane = "history"

// Sink stores events. It implements sinks.Sink and sinks.Blocker.
type Sink struct {
	cfg     Options
	metrics *metrics
	clock   clock
	began   time.Time // time passes since then, whatever the machine's clock does
	mu      sync.Mutex
	db      *history.DB // guarded by mu; nil while it is not open
	// cancel ends the retention and the audit log, end waits for them and for the questions;
	// guarded by mu.
	cancel context.CancelFunc
	end    func()
}

const (
	// retentionEvery is how often is looked for what is too old.
	retentionEvery = 10 * time.Minute
	// measureEvery is how old its size in the metrics may be.
	measureEvery = time.Minute
)

var (
	_ sinks.Sink             = (*Sink)(nil)
	_ sinks.Blocker          = (*Sink)(nil)
	_ sinks.EarlierRunFinder = (*Sink)(nil)
)

// New checks the configuration.
func New(cfg Options) (*Sink, error) {
	if cfg.Dir == "" {
		return nil, errors.New("history sink: it needs a directory")
	}
	if cfg.Patience == 0 {
		cfg.Patience = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sink{cfg: cfg, metrics: newMetrics(cfg.Registry), began: time.Now()}, nil
}

// Open opens the directory, or creates it.
func (s *Sink) Open(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil {
		return nil
	}
	db, err := history.Open(history.Options{
		Dir: s.cfg.Dir, LastVersionsBytes: 32 << 20, MemTableBytes: 8 << 20, FS: s.cfg.FS,
		Log: s.cfg.Log, DiskFull: s.diskChanged,
		KeepsUnsent: s.cfg.Audit != nil && len(s.cfg.Audit.Sinks) > 0,
	})
	if err != nil {
		return classify(err)
	}
	newest, err := db.Maintenance.Newest()
	if err != nil {
		return errors.Join(classify(err), db.Close())
	}
	s.clock.set(time.Since(s.began), newest)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.retain(ctx, db) })
	asked := func() {}
	if s.cfg.Serve != nil {
		asked = s.cfg.Serve(db.Questions)
	}
	if s.cfg.Audit != nil {
		recorder := &audit.Recorder{
			Config: *s.cfg.Audit, Cluster: s.cfg.Cluster, Store: db.Requests, Pseudonym: s.cfg.Pseudonym,
			OpenStream: s.openStream, Metrics: s.metrics.audit, Log: s.cfg.Log,
		}
		running.Go(func() { recorder.Run(ctx) })
		attributor := &audit.Attributor{
			Sinks: s.cfg.Audit.Sinks, Cluster: s.cfg.Cluster, Unsent: db.Unsent, Questions: db.Questions,
			FollowUp: s.cfg.FollowUp, Metrics: s.metrics.attributor, Log: s.cfg.Log,
		}
		running.Go(func() { attributor.Run(ctx) })
	}
	s.db, s.cancel, s.end = db, cancel, func() { asked(); running.Wait() }
	return nil
}

// retain removes what is too old, and measures what is left, until ctx ends.
func (s *Sink) retain(ctx context.Context, db *history.DB) {
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	wasScarce := false
	isLogged, level := false, slog.LevelInfo // after a pause the newest change is old
	for next := time.Now(); ; level = slog.LevelWarn {
		now, ahead := s.clock.now(s.cfg.Now().Round(0), time.Since(s.began))
		if isOff := ahead.Abs() > clockTolerance; isOff != isLogged {
			s.clockChanged(ctx, level, ahead)
			isLogged = isOff
		}
		scarce := db.Maintenance.Scarce()
		if scarce && !wasScarce {
			s.cfg.Log.Warn("the history's volume is nearly full: its oldest versions are removed",
				"dir", s.cfg.Dir, "remedy", "free space, or make the volume larger")
		}
		wasScarce = scarce
		if !time.Now().Before(next) || scarce {
			next = time.Now().Add(retentionEvery)
			if err := db.Maintenance.Retain(ctx, s.retention(), now); err != nil && ctx.Err() == nil {
				s.metrics.failures.Inc()
				s.cfg.Log.Error("old versions can't be removed", "dir", s.cfg.Dir, "err", err)
			}
		}
		s.metrics.measure(db)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Sink) retention() history.Retention {
	r := history.Retention{Age: s.cfg.Retention, MaxBytes: uint64(s.cfg.MaxBytes)}
	if s.cfg.Audit != nil {
		r.RequestAge = s.cfg.Audit.Retention
	}
	return r
}

// clockChanged logs that this machine's clock is far from the times of changes, and that it is not
// any more.
func (s *Sink) clockChanged(ctx context.Context, level slog.Level, ahead time.Duration) {
	switch {
	case ahead > clockTolerance:
		s.cfg.Log.Log(ctx, level, "this machine's clock is ahead of the newest change; old versions "+
			"are removed by the time of that change", "dir", s.cfg.Dir, "ahead",
			ahead.Round(time.Second).String())
	case ahead < -clockTolerance:
		s.cfg.Log.Log(ctx, level, "this machine's clock is behind the newest change; what leaves no "+
			"time, as a delete, has a wrong one", "dir", s.cfg.Dir, "behind",
			(-ahead).Round(time.Second).String())
	default:
		s.cfg.Log.Info("this machine's clock agrees with the times of changes again", "dir", s.cfg.Dir)
	}
}

// diskChanged logs that the disk refuses writes, and that it takes them again.
func (s *Sink) diskChanged(why error) {
	if why == nil {
		s.cfg.Log.Info("the history's disk takes writes again", "dir", s.cfg.Dir)
		return
	}
	s.cfg.Log.Error("the history waits for its disk; nothing is lost, and other sinks continue", "dir",
		s.cfg.Dir, "err", why)
}

// classify sorts the errors of a history. A directory that holds something else is for the
// operator.
func classify(err error) error {
	_, isPanic := errors.AsType[*event.PanicError](err)
	switch {
	case err == nil:
		return nil
	case isPanic, errors.Is(err, history.ErrForeign):
		return &sinks.Error{Class: sinks.Refused, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &sinks.Error{Class: sinks.Stopped, Err: err}
	case errors.Is(err, history.ErrInUse), errors.Is(err, history.ErrOtherCluster),
		errors.Is(err, history.ErrDamaged), // other sinks continue, and it may be moved away
		history.IsUnavailable(err):
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return &sinks.Error{Class: sinks.Retry, Err: err}
}

// Close closes the directory.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	s.cancel()
	if !s.db.IsStuck() { // else it waits, as Pebble does
		s.end()
	}
	err := s.db.Close()
	s.db = nil
	return err
}

// Order is ByLane: events are stored in the order given.
func (s *Sink) Order() sinks.Order { return sinks.ByLane }

// Limits are large batches, one at a time: each costs one fsync.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{Messages: 1000, Bytes: 8 << 20, Concurrency: 1}
}

// Lane is the same for all events.
func (s *Sink) Lane(context.Context, *event.Event) (string, error) { return lane, nil }

// Publish stores the messages, all or none, but for one at which it panics: that one is refused.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) {
	if len(batch) == 0 {
		return
	}
	events := make([]*event.Event, len(batch))
	for i, m := range batch {
		events[i] = m.Event
	}
	err := s.append(ctx, events)
	if _, isPanic := errors.AsType[*event.PanicError](err); isPanic && len(batch) > 1 {
		for i, m := range batch {
			m.Err = s.append(ctx, events[i:i+1])
		}
		return
	}
	sinks.Fail(batch, err)
}

// append waits for the disk for a while. What is not stored by then is stored again.
func (s *Sink) append(ctx context.Context, events []*event.Event) error {
	db := s.open()
	if db == nil {
		return &sinks.Error{
			Class: sinks.Reconnect,
			Err:   fmt.Errorf("history %s is not open", s.cfg.Dir),
		}
	}
	if err := db.Health(); err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	stored, err := db.Writer.Append(limited, events)
	if err == nil {
		s.metrics.count(stored)
		s.clock.learn(time.Since(s.began), events)
	}
	if err != nil && ctx.Err() == nil {
		if why := db.Health(); why != nil {
			return &sinks.Error{Class: sinks.Reconnect, Err: why}
		}
		if limited.Err() != nil {
			return &sinks.Error{
				Class: sinks.Reconnect,
				Err:   fmt.Errorf("history %s: the disk takes no writes: %w", s.cfg.Dir, err),
			}
		}
	}
	return classify(err)
}

// FindEarlierRun passes what is stored of the informer itself, and a version of the newest era, to
// ours.
func (s *Sink) FindEarlierRun(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (found bool, err error) {
	db := s.open()
	if db == nil {
		return false, &sinks.Error{Class: sinks.Reconnect, Err: fmt.Errorf("history %s is not open", s.cfg.Dir)}
	}
	q := db.Questions
	for _, u := range q.Resources.Units() {
		if u.Source != about.Source || u.Informer != about.Informer ||
			u.Resource != about.Resource || u.Group != about.Group {
			continue
		}
		notices, progress, err := q.Coverage.Notes(u)
		if err != nil {
			return false, classify(err)
		}
		for _, m := range slices.Concat(notices, progress) {
			isOurs := ours(sinks.Trace{MessageID: m.Event.MessageID(), PartitionKey: m.Event.PartitionKey})
			found = found || isOurs
		}
		var newest *query.Head
		for head, err := range q.Objects.Heads([]*record.Unit{u}, "*") {
			if err = cmp.Or(err, context.Cause(ctx)); err != nil {
				return false, classify(err)
			}
			if newest == nil || head.Era > newest.Era {
				newest = &head
			}
		}
		if newest == nil {
			continue
		}
		v, err := q.Objects.At(&newest.Object, query.Point{})
		if err != nil || v == nil {
			return false, classify(err)
		}
		isOurs := ours(sinks.Trace{MessageID: v.Event.MessageID(), PartitionKey: newest.Object.String()})
		found = found || isOurs
	}
	return found, nil
}

func (s *Sink) open() *history.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db
}

// Blocked is why nothing can be stored: the disk is full, read-only or broken, or what is left is
// for the state directory. Or why some events can't be: files are damaged.
func (s *Sink) Blocked() error {
	if db := s.open(); db != nil {
		return cmp.Or(db.Health(), db.Damage())
	}
	return nil
}

// DeadLetter stores the event with the reason and the attempts as attributes.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	dead := *e
	dead.Extensions = append(slices.Clip(e.Extensions),
		event.Attribute{
			Name:  "deadletterreason",
			Value: strings.Join(strings.Fields(reason.Error()), " "),
		},
		event.Attribute{Name: "deadletterattempts", Value: strconv.Itoa(attempts)})
	return s.append(ctx, []*event.Event{&dead})
}

// clock is the time that retention goes by. This machine's own clock may jump, and with it alone a
// jump ahead would remove everything. So it is believed up to the newest time that the API server
// gave a change, and the time that has passed since.
type clock struct {
	mu     sync.Mutex
	newest time.Time     // guarded by mu
	at     time.Duration // when newest was learned, as time that has passed; guarded by mu
}

// clockTolerance is how far the two may differ before it is logged.
const clockTolerance = time.Hour

// learn learns the times of changes, while passed has passed.
func (c *clock) learn(passed time.Duration, events []*event.Event) {
	for _, e := range events {
		if e.TimeSource == event.TimeManagedFields { // another time is of this machine's clock
			c.set(passed, e.Time)
		}
	}
}

// set learns a time, unless it is known that it is later.
func (c *clock) set(passed time.Duration, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.newest.Add(passed - c.at)) {
		c.newest, c.at = t, passed
	}
}

// now is the earlier one of this machine's time and of the one that is known, and how far this
// machine's is ahead. Zero: none is known yet.
func (c *clock) now(machine time.Time, passed time.Duration) (now time.Time, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest.IsZero() {
		return now, 0
	}
	now = c.newest.Add(passed - c.at)
	if ahead = machine.Sub(now); ahead < 0 {
		now = machine
	}
	return now, ahead
}

type metrics struct {
	stored   *metric.Counters
	bytes    *metric.Gauge
	horizon  *metric.Gauge
	failures *metric.Counter
	audit    *audit.Metrics
	// attributor is of the events about users.
	attributor *audit.AttributorMetrics
}

const (
	kindVersion = "version"
	kindMark    = "mark"
	kindRepeat  = "repeat"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	f := metric.With(registerer)
	return &metrics{
		stored: f.Counters("bridge_history_stored_total",
			"Events stored as versions of objects or as marks of the stream, and repeats of "+
				"those that were there.",
			"kind", kindVersion, kindMark, kindRepeat),
		bytes: f.Gauge("bridge_history_bytes", "What the history takes on disk."),
		horizon: f.Gauge("bridge_history_horizon_timestamp_seconds",
			"Time from which on every version is kept; 0 while retention has removed nothing."),
		failures: f.Counter("bridge_history_retention_failures_total",
			"Times that old versions could not be removed."),
		audit: audit.NewMetrics(f), attributor: audit.NewAttributorMetrics(f),
	}
}

func (m *metrics) count(s history.AppendResult) {
	m.stored.With(kindVersion).Add(float64(s.Versions))
	m.stored.With(kindMark).Add(float64(s.Notices))
	m.stored.With(kindRepeat).Add(float64(s.Repeats))
}

// measure reads how large the history is, and how far it goes back.
func (m *metrics) measure(db *history.DB) {
	m.bytes.Set(float64(db.Maintenance.DiskBytes()))
	horizon, err := db.Questions.Coverage.Horizon()
	switch {
	case err != nil: // questions and retention report it
	case horizon.IsZero():
		m.horizon.Set(0)
	default:
		m.horizon.Set(float64(horizon.Unix()))
	}
}
