package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// Standby makes the bridge one of several replicas, each with its own state, of which one
// publishes. Zero durations mean the documented default.
type Standby struct {
	Lease         Lease
	ProgressLease ProgressLease
	// Interval of writing the leader's progress, and of reading it; default 1 s.
	Interval time.Duration
	// Version distinguishes the configurations of replicas; "" for not known.
	Version string
}

// Lease decides who leads: *standby.Lease.
type Lease interface {
	Run(ctx context.Context) error
	Elected() <-chan struct{}
	Leader() string
	Identity() string
	Name() string
	Duration() time.Duration
	Gate() error
	Defer(unsynced func() string)
	Release()
}

// ProgressLease is where the leader writes its progress: *standby.ProgressLease.
type ProgressLease interface {
	Get(ctx context.Context) (p standby.Progress, led bool, err error)
	Acquire(ctx context.Context) (p standby.Progress, led bool, err error)
	Put(ctx context.Context, p *standby.Progress) (standby.PutResult, error)
}

// errFollowed ends a replica that did not lead: it has nothing to send.
var errFollowed = errors.New("stopped as standby")

// ErrStandby is returned by operations of the leader alone.
var ErrStandby = errors.New("this replica stands by, and sends nothing")

// replica is this process among its replicas: what it knows of the leader, and whether it leads.
type replica struct {
	cfg       Standby
	log       *slog.Logger
	informers *informers
	sinks     *sinkRunners
	changing  *semaphore.Weighted // of who starts or stops units and sinks, or begins to lead
	stopping  <-chan struct{}     // closed when the bridge makes no more changes
	metrics   *replicaMetrics

	mu       sync.Mutex // guards all below; held for a few operations in memory
	state    replicaState
	progress standby.Progress // of the leader; of the one before, once this replica leads
	version  string           // of the configuration
	led      bool             // others have published
	readAt   time.Time        // when the progress was last read
	readErr  error            // of the last attempt
	// doubtful has the units whose progress is not believed, and since when; zero once that is
	// reported
	doubtful map[string]time.Time
	takeErr  error // why this replica, which has the lease, does not lead yet
}

// newReplica returns nil where there are no other replicas.
func (b *Bridge) newReplica() *replica {
	if b.cfg.Standby == nil {
		return nil
	}
	r := &replica{
		cfg: *b.cfg.Standby, log: b.log, informers: &b.informers, sinks: &b.sinks,
		changing: b.changing, stopping: b.ended,
		version: b.cfg.Standby.Version, doubtful: map[string]time.Time{},
	}
	r.cfg.Interval = cmp.Or(r.cfg.Interval, time.Second)
	r.metrics = newReplicaMetrics(b.cfg.Registerer, r)
	return r
}

// prepareElection reads the progress of the others. A replica that knows nothing of them defers to
// them.
func (r *replica) prepareElection(read context.Context) {
	_ = r.read(read)
	r.cfg.Lease.Defer(r.unsynced)
}

// join waits until it is known who leads, or for a while, and until the leader's progress was read.
func (r *replica) join(ctx context.Context) {
	const patience = 3 * time.Second
	for began := time.Now(); r.cfg.Lease.Leader() == "" && time.Since(began) < patience &&
		ctx.Err() == nil; {
		_ = ratelimit.Sleep(ctx, 10*time.Millisecond)
	}
	for r.read(ctx) != nil {
		if ratelimit.Sleep(ctx, r.cfg.Interval) != nil {
			return
		}
	}
	leader := r.cfg.Lease.Leader()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.led = r.led || leader != "" && leader != r.cfg.Lease.Identity()
	r.state = r.state.after(progressRead)
}

// follow follows the leader until this replica is elected, then takes over. It returns when this
// replica leads, or when read or hard ends.
func (r *replica) follow(read, hard context.Context, publish func()) error {
	if r.is(joining) {
		return nil // read has ended
	}
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	r.log.Info("following", "leader", r.cfg.Lease.Leader())
	for {
		select { // to lead goes before all else
		case <-r.cfg.Lease.Elected():
			return r.takeOver(read, publish)
		default:
		}
		select {
		case <-read.Done():
			return nil
		case <-hard.Done():
			return nil
		case <-r.cfg.Lease.Elected():
		case <-tick.C:
			if r.read(read) == nil {
				r.forwardProgress()
			}
		}
	}
}

// read reads the leader's progress.
func (r *replica) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p, led, err := r.cfg.ProgressLease.Get(ctx)
	r.mu.Lock()
	failing := r.readErr != nil
	r.readErr = err
	if err == nil {
		r.progress, r.led, r.readAt = p, r.led || led, time.Now()
	}
	r.mu.Unlock()
	if err != nil && !failing && ctx.Err() == nil {
		r.log.Warn("can't read the leader's progress, trying again", "err", err)
	}
	return err
}

// forwardProgress gives the progress to the informers.
func (r *replica) forwardProgress() {
	for _, u := range r.informers.all() {
		_, ok := r.progressOf(u)
		ended := !ok && u.Draining() == informer.Gone && r.leaderReported()
		u.Replica.Follow(func(key string) standby.Unit { return r.progressFor(u, key) }, ended)
	}
}

// takeOver makes this replica publish: from the last progress of the leader before it, out of its
// own log.
func (r *replica) takeOver(ctx context.Context, publish func()) error {
	began := time.Now()
	r.happened(elected)
	p, led, ok, err := r.takeProgress(ctx)
	if !ok || r.changing.Acquire(ctx, 1) != nil {
		return err
	}
	defer r.changing.Release(1)
	r.mu.Lock()
	r.progress, r.led = p, r.led || led
	r.mu.Unlock()
	r.forwardProgress()
	behind := r.notInSync()
	r.happened(progressTaken)
	r.log.Info("this replica leads now, and publishes",
		"from_another", led, "in_sync", len(r.informers.all())-len(behind), "not_in_sync", len(behind),
		"took", time.Since(began).String())
	for i, why := range behind {
		if led && i < 10 {
			r.log.Warn("taking over without being in sync: an informer.gap event reports it",
				"informer", why.Component, "why", why.Message)
		}
	}
	r.metrics.takeovers.Inc()
	for _, out := range r.sinks.all() {
		out.publisher.ContinueFrom(p.Sinks[out.key])
	}
	publish()
	for _, u := range r.informers.all() {
		u.Replica.Lead()
	}
	return nil
}

// takePatience is the number of lease durations for which a replica keeps the lease while it can't
// take over the Lease with the progress.
const takePatience = 3

// takeProgress tries until it succeeds; ok is false when ctx ended before. When it fails for long,
// it gives the lease back, and the error ends this replica: another one may succeed.
func (r *replica) takeProgress(ctx context.Context) (p standby.Progress, led, ok bool, err error) {
	for began := time.Now(); ctx.Err() == nil; _ = ratelimit.Sleep(ctx, 100*time.Millisecond) {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		p, led, err = r.cfg.ProgressLease.Acquire(limited)
		cancel()
		if !r.failsToTake(err) {
			return p, led, true, nil
		}
		if waited := time.Since(began); waited > takePatience*r.cfg.Lease.Duration() {
			r.happened(takenInVain)
			r.cfg.Lease.Release() // it has published nothing
			return p, false, false, fmt.Errorf(
				"%w: this replica gives it back, since it can't take over: %w", standby.ErrLost, err)
		}
	}
	return p, false, false, nil
}

// failsToTake reports whether the progress was not taken over, and keeps err for Ready.
func (r *replica) failsToTake(err error) bool {
	r.mu.Lock()
	failing := r.takeErr != nil
	r.takeErr = err
	r.mu.Unlock()
	if err != nil && !failing {
		r.log.Warn("can't take over yet, trying again", "err", err)
	}
	return err != nil
}

// prepare makes an informer follow the leader, or lead, before it starts.
func (r *replica) prepare(u *informer.Informer) error {
	p, _ := r.progressOf(u)
	if err := u.Replica.Adopt(&p); err != nil {
		return err
	}
	u.Replica.Follow(func(key string) standby.Unit { return r.progressFor(u, key) }, false)
	if !r.follows() {
		u.Replica.Lead()
	}
	return nil
}

// sends returns an error while another replica is to publish.
func (r *replica) sends() error {
	switch {
	case !r.follows():
		return nil
	case r.cfg.Lease.Leader() == "":
		return fmt.Errorf("%w; there is no leader at the moment", ErrStandby)
	default:
		return fmt.Errorf("%w; ask %s, which leads", ErrStandby, r.cfg.Lease.Leader())
	}
}

// ReplicaStatus is the part of a bridge among its replicas.
type ReplicaStatus struct {
	// Role is "leader" or "standby".
	Role     string `json:"role"`
	Identity string `json:"identity"`
	// Leader is the last one seen to lead.
	Leader string `json:"leader,omitempty"`
	// InSync is set on a standby that could take over without a gap.
	InSync bool `json:"inSync"`
	// Behind is, on a standby, why a resource could not be taken over without a gap.
	Behind []Reason `json:"behind,omitempty"`
	// Held is how many changes at most are pending until the leader has reported their delivery.
	Held int `json:"held"`
	// ProgressAgeSeconds is how long ago the leader's progress was last read.
	ProgressAgeSeconds float64 `json:"progressAgeSeconds,omitempty"`
}

func (r *replica) status() *ReplicaStatus {
	if r == nil {
		return nil
	}
	s := &ReplicaStatus{
		Role: "leader", Identity: r.cfg.Lease.Identity(), Leader: r.cfg.Lease.Leader(),
		Held: r.held(),
	}
	if r.follows() {
		s.Role, s.Behind = "standby", r.notInSync()
		s.InSync = len(s.Behind) == 0
		r.mu.Lock()
		s.ProgressAgeSeconds = age(r.readAt).Seconds()
		r.mu.Unlock()
	}
	return s
}

func (r *replica) held() (n int) {
	for _, u := range r.informers.all() {
		n += u.Replica.Held()
	}
	return n
}

// replicaMetrics are of the bridge among its replicas.
type replicaMetrics struct {
	takeovers *metric.Counter
	short     *metric.Gauge
}

func newReplicaMetrics(reg prometheus.Registerer, r *replica) *replicaMetrics {
	m := metric.With(reg)
	// Each shard has a lease, and a leader of its own.
	metric.WithLabel(reg, "lease", r.cfg.Lease.Name()).FlagFunc("bridge_standby_leader",
		"1 while this replica publishes, 0 while it follows.",
		func() bool { return !r.follows() })
	m.GaugeFunc("bridge_standby_behind_resources",
		"Resources that this standby could not take over without a gap.",
		func() float64 {
			if !r.follows() {
				return 0
			}
			return float64(len(r.notInSync()))
		})
	m.GaugeFunc("bridge_standby_redaction_key_differs",
		"1 while this standby has another redaction key than the leader.",
		func() float64 {
			if r.otherKey() == "" {
				return 0
			}
			return 1
		})
	m.GaugeFunc("bridge_standby_doubtful_resources",
		"Resources whose progress on the Lease is too far ahead of this replica's own "+
			"watch to be believed.",
		func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(len(r.doubtful))
		})
	m.GaugeFunc("bridge_standby_held_events",
		"Changes, at most, that are pending until the leader has reported that they "+
			"are with the brokers.",
		func() float64 { return float64(r.held()) })
	m.GaugeFunc("bridge_standby_progress_age_seconds",
		"How long ago this standby has last read the leader's progress.",
		func() float64 {
			if !r.follows() {
				return 0
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return age(r.readAt).Seconds()
		})
	return &replicaMetrics{
		takeovers: m.Counter("bridge_standby_takeovers_total",
			"Times this process has begun to publish as the leader."),
		short: m.Gauge("bridge_standby_progress_short",
			"1 while the progress that this leader reports is too large for its object, and leaves "+
				"positions of sinks out."),
	}
}
