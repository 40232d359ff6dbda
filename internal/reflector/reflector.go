package reflector

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Reflector keeps a Store in step with one collection of the API server. See New, Run and Status.
type Reflector struct {
	cfg     Config
	url     *url.URL
	log     *slog.Logger
	metrics *metrics
	status  status
	gate    *gate
	undone  atomic.Bool // see Undone

	// All below is owned by Run.

	backoff backoff
	// expiries is the backoff of 410s alone. They are the server's plain word that a list is needed, so that the first is followed
	// at once, however many other failures there were; only those in a row wait.
	expiries backoff
	position // where the Store stands, and the watch goes on
	// probing says that the server's version is to be asked for before anything else.
	probing bool
	// failed says that a step has failed since Run began: the server may be another when it is found again.
	failed bool
	// suspect is the reason of the gap that there is after version, once the probe said up to where; "" for none.
	suspect string
	// relist is set while everything is to be replaced by a list.
	relist *resource.Relist
	// reached is the latest version that the Store has of a list that is not complete yet, and of what was there before the first.
	reached resource.Version
	listing
	watching
	quarantine
	scope
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
		position: at(cfg.From),
		// A list of one namespace adds to what the last list of everything has spared, and may be the first of this process.
		quarantine: quarantine{spared: map[resource.Key]bool{}},
		scope:      scope{states: maps.Clone(cfg.Selected), asOf: maps.Clone(cfg.AsOf)},
	}
	if r.states == nil {
		r.states = map[string]resource.NamespaceState{}
	}
	if r.asOf == nil {
		r.asOf = map[string]resource.Version{}
	}
	r.status.s = Status{Phase: Stopped, Version: cfg.From, Relists: map[string]int{}}
	registerQuiet(cfg.Registerer, &r.status)
	registerPaused(cfg.Registerer, r.gate)
	return r, nil
}

// Status is what the reflector is doing. It may be called from any goroutine, at any time.
func (r *Reflector) Status() Status { return r.status.get() }

// Run follows the collection until ctx ends, and then returns nil; or until the Store fails, and then returns its error.
// Everything else is retried. It may be called once.
func (r *Reflector) Run(ctx context.Context) error {
	defer r.status.phase(Stopped)
	if r.awaitNamespaces(ctx); ctx.Err() != nil {
		return nil
	}
	if r.version == "" && r.cfg.Snapshot {
		r.beginRelist(resource.Relist{Initial: true})
		r.reached = r.cfg.Reached
	}
	r.probing = r.relist == nil || r.reached != ""
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

// attempt makes one step, and waits after one that failed. It returns an error of the Store.
func (r *Reflector) attempt(ctx context.Context) error {
	started := time.Now()
	err := r.step(ctx)
	if ctx.Err() != nil {
		r.brokenOff()
		return nil
	}
	if failed, ok := errors.AsType[*storeError](err); ok {
		return failed.err
	}
	if err != nil {
		r.failed = true
		r.pause(ctx, r.recoverFrom(err, started), err)
	}
	return nil
}

// step sends one request, or the requests of one list, and reads the answer to its end.
func (r *Reflector) step(ctx context.Context) error {
	r.probing = r.probing || r.undone.Load()
	switch {
	case r.probing:
		r.status.phase(Probing)
		return r.locate(ctx)
	case r.relist != nil:
		r.status.phase(Listing)
		return r.list(ctx)
	case r.beginMove():
		return nil
	default:
		return r.watch(ctx)
	}
}

// locate probes, and decides by the server's version what comes next.
func (r *Reflector) locate(ctx context.Context) error {
	now, err := r.probe(ctx)
	if err == nil {
		err = r.identify(ctx)
	}
	if err != nil {
		return err
	}
	r.probing = false
	suspect, undone := r.suspect, r.undone.Swap(false)
	r.suspect = ""
	switch {
	case undone && r.version != "":
		r.beginRelist(resource.Relist{Reason: resource.ReasonRewound, Rewound: true, From: r.version, To: now})
	case r.relist != nil && !r.relist.Partial():
		r.aim(now, undone)
	case r.version == "":
		return r.beginNow(ctx, now)
	case r.version.Newer(now):
		r.beginRelist(resource.Relist{Reason: resource.ReasonRewound, Rewound: true, From: r.version, To: now})
	case suspect == resource.ReasonExpired && r.stuck.closed && now == r.version:
		r.stuck = stuck{} // the server is at our version: nothing can be missing
	case suspect != "":
		r.beginRelist(resource.Relist{Reason: suspect, From: r.version, To: now})
	}
	return nil
}

// identify asks whether the cluster is the same, but for the first time: whoever made the reflector has just found the server.
func (r *Reflector) identify(ctx context.Context) error {
	if r.cfg.Identify == nil || !r.failed {
		return nil
	}
	err := r.cfg.Identify(ctx)
	if errors.Is(err, ErrOtherCluster) {
		return &storeError{err}
	}
	return err
}

// aim corrects a list that is under way for a server that is at another version than it was. What an attempt that failed has handed on may be
// undone too.
func (r *Reflector) aim(now resource.Version, undone bool) {
	r.relist.To = now
	if undone || r.relist.From.Newer(now) || r.reached.Newer(now) {
		r.rewound(now)
	}
}

func (r *Reflector) rewound(now resource.Version) {
	if r.relist.Rewound {
		return
	}
	r.relist.Reason, r.relist.Rewound = resource.ReasonRewound, true
	r.log.Warn("the API server's history went back", "resource_version", cmp.Or(r.relist.From, r.reached), "server_version", now)
}

// beginNow starts a reflector that is interested in the future only.
func (r *Reflector) beginNow(ctx context.Context, now resource.Version) error {
	if err := r.adoptOnly(ctx); err != nil {
		return err
	}
	if err := r.bookmark(ctx, now); err != nil {
		return err
	}
	r.status.set(func(s *Status) { s.Synced = true })
	return nil
}

func (r *Reflector) beginRelist(why resource.Relist) {
	r.relist = &why
	r.listing = listing{watchListOff: r.watchListOff}
	r.stuck = stuck{}
	reason := why.Reason
	if why.Initial {
		reason = relistInitial
		r.log.Debug("listing everything")
	} else {
		r.log.Warn("versions are missing: listing everything to find what changed",
			"reason", reason, "resource_version", why.From, "server_version", why.To)
	}
	r.metrics.relists.WithLabelValues(reason).Inc()
	r.status.set(func(s *Status) {
		s.Relists[reason]++
		s.Synced = false
	})
}

// seen notes that the server sent something that counts.
func (r *Reflector) seen(change func(*Status)) {
	now := time.Now()
	r.metrics.lastSeen.Set(float64(now.UnixMilli()) / 1000)
	r.status.set(func(s *Status) {
		s.LastSeen, s.LastError, s.NotFound = now, "", false
		change(s)
	})
}

// query is what every request for the collection has.
func (r *Reflector) query() url.Values {
	q := url.Values{}
	if r.cfg.LabelSelector != "" {
		q.Set("labelSelector", r.cfg.LabelSelector)
	}
	if r.cfg.FieldSelector != "" {
		q.Set("fieldSelector", r.cfg.FieldSelector)
	}
	return q
}

// seconds is a duration as the API server takes it.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
