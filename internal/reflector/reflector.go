package reflector

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
)

// Reflector keeps a Store in sync with one collection of the API server. See New, Run and Status.
type Reflector struct {
	cfg     Config
	url     *url.URL
	log     *slog.Logger
	metrics *metrics
	status  status
	gate    *gate

	// Run owns all fields below.

	state   state
	backoff backoff
	// expiries is the backoff of 410s alone. They state plainly that a list is needed, so the first
	// is followed at once, however many other failures there were; only those in a row wait.
	expiries   backoff
	quarantine quarantine
	warnings   warnings
	scope      scope
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Reflector, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Reflector{
		cfg:      cfg,
		url:      cfg.Client.Base.JoinPath(cfg.Type.CollectionPath(cfg.Namespace)),
		log:      cfg.Log.With("resource", cfg.Type.String()),
		metrics:  newMetrics(cfg.Registerer),
		backoff:  backoff{Backoff: cfg.Backoff},
		gate:     newGate(),
		expiries: backoff{Backoff: cfg.Backoff, eager: true},
		state:    first(cfg.From, cfg.Reached, cfg.Snapshot),
		// A list of one namespace adds to what the last list of everything has skipped, and may be
		// the first of this process.
		quarantine: quarantine{skipped: map[resource.Key]bool{}},
		scope:      scope{states: maps.Clone(cfg.Selected), asOf: maps.Clone(cfg.AsOf)},
	}
	if r.scope.states == nil {
		r.scope.states = map[string]resource.NamespaceState{}
	}
	if r.scope.asOf == nil {
		r.scope.asOf = map[string]resource.Version{}
	}
	r.status.s = Status{Phase: Stopped, Version: cfg.From, Relists: map[string]int{}}
	registerQuiet(cfg.Registerer, &r.status)
	registerPaused(cfg.Registerer, r.gate)
	return r, nil
}

// Status is what the reflector is doing. It may be called from any goroutine, at any time.
func (r *Reflector) Status() Status { return r.status.get() }

// unstarted is the state before the first step.
var unstarted state

// Run follows the collection until ctx ends, and then returns nil; or until the Store fails, and
// then returns its error. Everything else is retried. It may be called once.
func (r *Reflector) Run(ctx context.Context) error {
	defer r.status.phase(Stopped)
	if r.awaitNamespaces(ctx); ctx.Err() != nil {
		return nil
	}
	defer r.cfg.Diverged.Watch(r.gate.cutStep)()
	r.report(&unstarted, &r.state)
	for {
		step, end, ok := r.gate.enter(ctx, func() { r.status.phase(Paused) })
		if !ok {
			return nil
		}
		err := r.attempt(step)
		end()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// attempt makes one step, and waits after a failed one. It returns an error of the Store.
//
// A watch lasts for hours. What comes behind it is in conclude, so that its variables are not on
// the stack meanwhile: Go shrinks a stack only while less than a quarter of it is used. With 5.0 KB
// in use it stayed at 16 KB, with 3.2 KB it shrinks to 8 KB.
func (r *Reflector) attempt(ctx context.Context) error {
	if r.cfg.Diverged.IsSet() {
		r.state.step = toProbe
	}
	started := time.Now()
	o := r.step(ctx)
	return r.conclude(ctx, started, &o)
}

// conclude decides what follows a step, and waits after a failed one.
func (r *Reflector) conclude(ctx context.Context, started time.Time, o *outcome) error {
	r.cfg.Store.Flush()
	o.took, o.paused = time.Since(started), ctx.Err() != nil
	if failed, ok := errors.AsType[*storeError](o.err); ok && !o.paused {
		return failed.err
	}
	if o.paused && o.diverged {
		r.cfg.Diverged.Set() // nothing follows from the probe that took the signal: another one does
	}
	before := r.state
	var pause wait
	r.state, pause = before.next(*o)
	r.report(&before, &r.state)
	if o.err != nil && !o.paused {
		r.metrics.errors.With(reasonOf(o.err)).Inc()
		r.pause(ctx, r.delay(pause), o.err)
	}
	return nil
}

// step sends one request, or the requests of one list, and reads the answer to its end.
func (r *Reflector) step(ctx context.Context) outcome {
	switch r.state.step {
	case toProbe:
		r.status.phase(Probing)
		return r.locate(ctx)
	case toList:
		r.status.phase(Listing)
		return r.list(ctx)
	case toWatch:
		if r.beginMove() {
			return outcome{}
		}
	}
	return r.watch(ctx)
}

// report logs and counts what has become due after a step.
func (r *Reflector) report(before, after *state) {
	why := after.relist
	switch {
	case after.relists == before.relists:
		if why != nil && why.Rewound() && before.relist != nil && !before.relist.Rewound() {
			r.log.Warn("the API server's history went back",
				"resource_version", cmp.Or(why.From, after.reached), "server_version", why.To)
		}
		return
	case why.Initial():
		r.log.Debug("listing everything")
	default:
		r.log.Warn("versions are missing: listing everything to find what changed",
			"reason", why.Reason, "resource_version", why.From, "server_version", why.To)
	}
	reason := why.Reason
	if why.Initial() {
		reason = relistInitial
	}
	r.metrics.relists.With(reason).Inc()
	r.status.set(func(s *Status) {
		s.Relists[reason]++
		s.Synced = false
	})
}

// delay returns how long a wait is now.
func (r *Reflector) delay(w wait) (d time.Duration) {
	if w.startOver {
		r.backoff.startOver()
	}
	switch {
	case w.expiry:
		d = r.expiries.delay()
	case w.backoff:
		d = r.backoff.delay()
	}
	if w.atLeast > d {
		// A little later than asked, so that not all clients come back at the same moment.
		d = w.atLeast + time.Duration(rand.Float64()*float64(r.cfg.Backoff.Initial))
	}
	return d
}

// pause waits, and the status shows it.
func (r *Reflector) pause(ctx context.Context, delay time.Duration, err error) {
	err = explain(err)
	r.status.set(func(s *Status) {
		s.LastError = err.Error()
		s.NotFound = reasonOf(err) == reasonNotFound
	})
	if delay == 0 {
		r.log.Info("request ended early, trying again at once",
			"resource_version", r.state.at.version, "err", err)
		return
	}
	r.log.Warn("request failed, trying again", "resource_version", r.state.at.version,
		"delay", delay.Round(time.Millisecond), "err", err)
	r.status.phase(BackingOff)
	_ = ratelimit.Sleep(ctx, delay)
}
