package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/checkpoint"
	"github.com/kubebridge/bridge/internal/kube/namespaces"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
)

// Config of a Bridge. Zero values mean the documented default.
type Config struct {
	// Cluster is the name in events.
	Cluster string
	// Client reaches the API server.
	Client *reflector.Client
	// DB is the state database. The caller opens it before and closes it after Run.
	DB *store.DB
	// Units are what the bridge watches.
	Units []informer.Config
	// Unknown reports whether the API server could not answer if it serves a resource, when Units
	// were made; may be nil.
	Unknown func(resource.Type) bool
	// Planner is asked while the bridge runs whether Units is still everything there is to watch.
	// Informers start, move and stop accordingly. nil: they never change.
	Planner Planner
	// PlanInterval is how often the Planner is asked without an occasion; default 30 s.
	PlanInterval time.Duration
	// Sinks are where it goes.
	Sinks []SinkConfig
	// Services run as long as anything else does: an embedded broker.
	Services []Service
	// Trace returns the function that makes the traceparent of an informer's events for a sink,
	// from their source and id. nil: events have none.
	Trace func(informer, sink string) func(source, id string) string
	// OnSettle is called with the items that a sink has settled; see publisher.Config. May be nil.
	OnSettle func(sink string, settled []*publisher.Item)
	// OnSynced is called once, when all resources of the start are in sync. May be nil.
	OnSynced func()
	// QueueBytes bounds the memory of the queues of all units together, beside the bound of each; 0
	// for no bound.
	QueueBytes int64
	// CommitInterval is how often settled changes are committed; default 200 ms.
	CommitInterval time.Duration
	// Watchdog reopens a watch that sent neither event nor bookmark for so long; default 0 for
	// never.
	Watchdog time.Duration
	// Identify returns an error when the API server is that of another cluster; see
	// reflector.Config. nil: it is not called.
	Identify func(ctx context.Context) error
	// Standby makes the bridge one of several replicas, of which one publishes; nil for a single
	// bridge. It needs a state on disk.
	Standby *Standby
	// Drain is how long a stop may take; default 15 s. It takes less when every sink that is waited
	// for fails.
	Drain time.Duration
	Log   *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// SinkConfig is one sink and the settings of its publisher.
type SinkConfig struct {
	Name      string
	Sink      sinks.Sink
	Publisher publisher.Config // Sink, Name, Saved, Patient, Log and Registerer are filled in
	// Target is where the sink sends to: a sink that sends elsewhere has another. Replicas compare
	// it; it holds no secrets. May be "".
	Target string
	// KeepsNewest: the destination keeps only the last event of each object, so nothing is sent
	// there again (Resend).
	KeepsNewest bool
	// Scope has the metrics that the sink itself has registered, and ends with it; nil for none.
	Scope *metric.Scope
}

// Service has to run before a sink can work.
type Service interface {
	Run(ctx context.Context) error
	// WaitReady waits until the sink can work, until Run has ended, or until ctx ends.
	WaitReady(ctx context.Context) error
}

// Bridge runs the informers and the sinks of one process.
type Bridge struct {
	cfg        Config // constant after New
	log        *slog.Logger
	committer  *checkpoint.Committer
	budget     *ratelimit.Budget // of the queues of all units
	spooler    *changelog.Spooler
	sinks      sinkRunners
	informers  informers
	namespaces *namespaces.Watcher
	ownerCache ownerCache
	pauses     pausedParts
	changes    *metric.Counters    // of the units, while the bridge runs
	requests   chan *request       // for the reconciler
	ended      chan struct{}       // closed when the reconciler takes no more requests
	replica    *replica            // nil when there are no others
	changing   *semaphore.Weighted // of who starts or stops units and sinks, or begins to lead
	// process distinguishes messages that may be of older states than those of another process. It
	// changes when an informer has ended and not all its pending events are on disk. Owned by New,
	// then by the reconciler.
	process string
}

// New checks, opens the state of each unit and starts nothing.
func New(cfg Config) (*Bridge, error) {
	if cfg.Client == nil || cfg.DB == nil {
		return nil, errors.New("bridge: client and state database are required")
	}
	cfg.Drain = cmp.Or(cfg.Drain, 15*time.Second)
	cfg.PlanInterval = cmp.Or(cfg.PlanInterval, 30*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{
		cfg: cfg, log: cfg.Log, informers: informers{gone: map[string]removedInformer{}},
		changes: countChanges(cfg.Registerer), budget: ratelimit.NewBudget(cfg.QueueBytes),
		requests: make(chan *request), ended: make(chan struct{}), changing: semaphore.NewWeighted(1),
		process: rand.Text()[:8],
	}
	b.namespaces = namespaces.New(namespaces.Config{
		Client: cfg.Client, Watchdog: cfg.Watchdog, Identify: cfg.Identify,
		Log: b.log.With("informer", "namespaceSelector"),
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{
			"informer": "namespaceSelector", "resource": namespaces.Type.String(), "namespace": "",
		}, cfg.Registerer),
	})
	var err error
	b.committer, err = checkpoint.New(checkpoint.Config{
		DB: cfg.DB, Interval: cfg.CommitInterval, Log: cfg.Log, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	ticks, err := cfg.DB.Clock()
	if err != nil {
		return nil, err
	}
	client := *cfg.Client
	client.Clock = reflector.NewClock(ticks, cfg.DB.SetClock, cfg.Log)
	b.cfg.Client = &client
	b.registerBudget()
	b.spooler = changelog.NewSpooler(0)
	b.replica = b.newReplica()
	for _, sc := range cfg.Sinks {
		if err := b.addSink(sc); err != nil {
			return nil, err
		}
	}
	var problems []error
	names := map[string]bool{}
	for _, uc := range cfg.Units {
		if name := uc.Name(); names[name] {
			problems = append(problems, errTwice(name))
			continue
		}
		names[uc.Name()] = true
		u, err := b.newInformer(uc, false, !cfg.DB.Database().Runs().WasClean())
		if err != nil {
			problems = append(problems, err)
			continue
		}
		b.informers.add(u)
	}
	return b, errors.Join(problems...)
}

func (b *Bridge) registerBudget() {
	metrics := metric.With(b.cfg.Registerer)
	metrics.GaugeFunc("bridge_queue_bytes", "What the queues of all resources hold in memory.",
		func() float64 { return float64(b.budget.Used()) })
	metrics.GaugeFunc("bridge_queue_limit_bytes",
		"What the queues of all resources may hold in memory together; 0 for no limit. Beyond half "+
			"of it each queue has an equal part of the rest.",
		func() float64 { return float64(b.cfg.QueueBytes) })
}

func (b *Bridge) addSink(sc SinkConfig) error {
	if b.sinks.get(sc.Name) != nil {
		return fmt.Errorf("sink %s: the name is used twice", sc.Name)
	}
	out, err := b.newSinkRunner(sc, false, newLossReport(b, &sc).send)
	if err == nil {
		b.sinks.set(append(slices.Clone(b.sinks.all()), out))
	}
	return err
}

func errTwice(name string) error {
	return fmt.Errorf("informer %s: it is there twice, and would share its state with itself", name)
}

// ErrDrain is returned by Run when it did not wait until everything was sent.
var ErrDrain = errors.New("what is not sent is sent after the next start")

var (
	errDeadline = fmt.Errorf("the drain deadline has passed: %w", ErrDrain)
	errInVain   = fmt.Errorf("the sinks take nothing: %w", ErrDrain)
)

// Run works until ctx ends and everything read by then is settled, or the drain deadline has passed
// or can bring nothing (ErrDrain); or until something fails that only a restart can repair.
func (b *Bridge) Run(ctx context.Context) error {
	if err := b.cfg.DB.Database().Runs().Begin(); err != nil {
		return err
	}
	if err := b.run(ctx); errors.Is(err, errFollowed) {
		return nil // what others have sent, only they know: the mark of a clean end is not for this one
	} else if err != nil {
		return err
	}
	if !b.informers.isClean() {
		return nil // it has not found out what the run before has sent
	}
	return b.cfg.DB.Database().Runs().End()
}

func (b *Bridge) run(ctx context.Context) error {
	// hard ends everything at once; ctx only ends reading.
	hard, failed := context.WithCancelCause(context.WithoutCancel(ctx))
	defer failed(errDone)
	read, stopReading := context.WithCancelCause(ctx)
	defer stopReading(errDone)
	context.AfterFunc(hard, func() { stopReading(context.Cause(hard)) })
	// writes that wait for the disk end too; not at a good end
	defer context.AfterFunc(hard, b.cfg.DB.Database().Release)()

	services, servicesCtx := newStage(hard, failed)
	commits, commitsCtx := newStage(hard, failed)
	publishing, publishingCtx := newStage(hard, failed)
	units, unitsCtx := newStage(hard, failed)
	replicas, replicasCtx := newStage(hard, failed)
	for _, s := range b.cfg.Services {
		services.start(servicesCtx, "", s.Run)
	}
	for _, s := range b.cfg.Services {
		_ = s.WaitReady(read) // why it failed, Run reports; a stop does not wait for it
	}
	commits.start(commitsCtx, "", b.committer.Run)
	commits.start(commitsCtx, "", b.spooler.Run)
	publish := func() {
		for _, out := range b.sinks.all() {
			b.startSink(publishingCtx, publishing, out)
		}
	}
	// Sinks run at once where there are no other replicas, else when this one leads. resign gives
	// the lease to the next one.
	resign := func(context.Context) {}
	if r := b.replica; r == nil {
		publish()
	} else {
		r.prepareElection(read)
		replicas.start(replicasCtx, "", r.cfg.Lease.Run)
		r.join(read)
		reporter := newReporter(r)
		resign = reporter.resign
		commits.start(commitsCtx, "", reporter.run)
		units.start(unitsCtx, "",
			func(hard context.Context) error { return r.follow(read, hard, publish) })
	}
	units.start(unitsCtx, "namespaces", func(context.Context) error { return b.namespaces.Run(read) })
	start := func(u *informer.Informer) {
		if b.replica != nil {
			if err := b.replica.prepare(u); err != nil {
				failed(err)
			}
		}
		run := u.Begin(read, unitsCtx)
		units.start(unitsCtx, "informer "+u.Name(),
			func(hard context.Context) error { return causeFirst(hard, run()) })
	}
	for _, u := range b.informers.all() {
		start(u)
	}
	reconciler := &reconciler{
		b: b, startInformer: start, startSink: func(out *sinkRunner) {
			b.startSink(publishingCtx, publishing, out)
		},
		previous: Plan{Unknown: b.cfg.Unknown}, unclean: map[string]bool{},
		planner: b.cfg.Planner, planInterval: b.cfg.PlanInterval,
	}
	units.start(unitsCtx, "", func(context.Context) error { return reconciler.run(read) })
	services.start(servicesCtx, "", func(context.Context) error { return b.cfg.Client.Clock.Run(read) })
	progress := startProgress{informers: b.informers.all, onSynced: b.cfg.OnSynced, log: b.log}
	services.start(servicesCtx, "", func(context.Context) error { return progress.run(read) })
	refresh := bodyRefresh{
		left: b.cfg.DB.BodiesLeft, informers: b.informers.all, stateErr: b.stateErr,
	}
	units.start(unitsCtx, "", func(context.Context) error { return refresh.run(read) })
	services.start(servicesCtx, "", func(ended context.Context) error {
		<-read.Done() // whatever ends the bridge ends reading
		b.deadline(ctx, hard, ended, failed)
		return nil
	})
	services.start(servicesCtx, "", func(ended context.Context) error {
		<-read.Done()
		b.endInVain(ended, failed)
		return nil
	})

	err := errors.Join(units.wait(), publishing.end(), commits.end())
	resign(hard)
	err = errors.Join(err, replicas.end(), services.end())
	if why := context.Cause(hard); why != nil {
		return errors.Join(why, err)
	}
	return err
}

// causeFirst returns err. An error that follows from the end of a publisher comes later, since the
// publisher's own error says why.
func causeFirst(hard context.Context, err error) error {
	if errors.Is(err, publisher.ErrStopped) {
		_ = ratelimit.Sleep(hard, time.Second)
	}
	return err
}

// deadline ends everything when the drain takes too long.
func (b *Bridge) deadline(ctx, hard, ended context.Context, failed context.CancelCauseFunc) {
	if hard.Err() != nil {
		return // it failed: nothing is drained
	}
	if b.replica.follows() {
		failed(errFollowed)
		return
	}
	b.log.Info("stopping: sending what was read", "cause", context.Cause(ctx), "deadline",
		b.cfg.Drain.String())
	for _, p := range b.sinks.all() {
		// ends the pauses between its attempts; the informers report its success
		go func() { _ = p.publisher.Drain(hard) }()
	}
	select {
	case <-time.After(b.cfg.Drain):
		failed(errDeadline)
	case <-hard.Done():
	case <-ended.Done():
	}
}

// drainPatience is how long a drain waits for sinks that fail. Each tries again at its beginning.
const drainPatience = 2 * time.Second

// endInVain ends everything when the drain is in vain. Meanwhile what is pending is put on disk, as
// in a long outage, so that the next start sends it to these sinks alone; without a backlog on disk
// the others may get it again.
func (b *Bridge) endInVain(ended context.Context, failed context.CancelCauseFunc) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for since := time.Now(); ; {
		select {
		case <-ended.Done():
			return
		case now := <-tick.C:
			if !b.inVain(since) {
				since = now
				continue
			}
			b.spooler.SpoolNow()
			if now.Sub(since) >= drainPatience {
				failed(errInVain)
				return
			}
		}
	}
}

// inVain reports whether each informer that has not ended waits only for sinks whose last attempt
// failed, and no sink has settled anything since a time.
func (b *Bridge) inVain(since time.Time) bool {
	fails := map[string]bool{}
	for _, out := range b.sinks.all() {
		at, failed := out.publisher.Progress()
		if at.After(since) {
			return false
		}
		fails[out.name] = failed
	}
	waits := false
	for _, u := range b.informers.all() {
		select {
		case <-u.Ended():
			continue
		default:
		}
		pending := u.PendingFor()
		if len(pending) == 0 ||
			slices.ContainsFunc(pending, func(sink string) bool { return !fails[sink] }) {
			return false
		}
		waits = true
	}
	return waits
}
