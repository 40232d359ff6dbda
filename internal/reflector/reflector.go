package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
)

// Store takes what the reflector reads, in order, from one goroutine. Every method blocks while
// there is no room and returns ctx's error when ctx ends. Any other error ends Run.
type Store interface {
	Add(ctx context.Context, obj *resource.Object) error
	Update(ctx context.Context, obj *resource.Object) error
	// Delete hands on the last state of an object, with the deletion's version. Within a list, the
	// object came earlier in the list or the watch before it; the list is as of a later version.
	Delete(ctx context.Context, obj *resource.Object) error
	// Bookmark: everything up to v was handed on.
	Bookmark(ctx context.Context, v resource.Version) error
	// BeginReplace: everything known will be replaced by Replace calls. A BeginReplace without an
	// EndReplace before it is abandoned: its items may be incomplete. Of a RelistSelection no
	// EndReplace follows. Of one that is Partial only what is known of its namespace is replaced.
	BeginReplace(ctx context.Context, why resource.Relist) error
	// Replace hands on one item of the list. Within one list an object may come twice; the later
	// one counts.
	Replace(ctx context.Context, obj *resource.Object) error
	// EndReplace: the list was complete, as of v. What is known and was not listed is gone.
	EndReplace(ctx context.Context, v resource.Version) error
	// Unselected hands on an object that Config.Matches does not match, in lists too; gone: it is
	// deleted. It also hands on the identity of an object whose last state can't be understood,
	// when the object is deleted, or the server's history went back.
	Unselected(ctx context.Context, obj *resource.Object, gone bool) error
	// Progress: everything up to v was handed on, while only unwanted objects came. It is called
	// about each second.
	Progress(ctx context.Context, v resource.Version) error
	// Quarantine hands on data that could not be understood, before it is reconciled by a list, or
	// skipped by one; the same bytes once, however often they come.
	Quarantine(ctx context.Context, u *resource.Unreadable) error
	// Skip hands on the identity of an item that can't be understood, behind which the list
	// continues. An object of that key is not gone then. Without a key it may be any object, and
	// nothing is taken for gone at this list's end.
	Skip(ctx context.Context, of resource.Identity) error
	// Flush: the reflector is about to wait. It does not block.
	Flush()
}

// Config is what a Reflector follows, from where, and how patiently. Zero values mean the
// documented default.
type Config struct {
	Client *Client // required
	Store  Store   // required

	Type          resource.Type // required
	Namespace     string        // "" for all
	LabelSelector string        // applied by the API server; "" for all
	FieldSelector string

	// Namespaces are the only ones whose objects are handed on; nil for all. The requests are still
	// those of Namespace; objects of other namespaces are dropped. A namespace that enters the
	// selection is listed by itself (a Relist with its name, and the items). For one that leaves,
	// that list is empty.
	Namespaces Namespaces
	// Selected has the states of the namespaces in the Store. AsOf has the versions as of which
	// selected ones were listed, or began to be. Both are used with Namespaces only.
	Selected map[string]resource.NamespaceState
	AsOf     map[string]resource.Version
	// Selects reports whether an object is handed on, by its namespace and name; nil for all. Its
	// answer must never change.
	Selects func(obj *resource.Object) bool
	// Matches reports whether the current state of an object is selected; nil for all. It is a
	// label selector that is not sent to the API server: only the Store knows which objects leave
	// the selection, through its Unselected.
	Matches func(obj *resource.Object) bool

	// From is the version to resume after; "" for none.
	From resource.Version
	// Snapshot lists everything when From is "". Without it the reflector begins with changes from
	// now on; a Bookmark reports that version to the Store.
	Snapshot bool
	// Reached is a version that the Store has reached before, though From is "": an API server with
	// a lower version has gone back in its history. "" for none.
	Reached resource.Version

	// Diverged is set when an object is in an older state than before: the server's history is
	// another, though its version is not lower. The running request is ended, and everything is
	// listed and compared by equality. nil: it is never set.
	Diverged *ratelimit.Signal

	// Parse says what is removed and redacted. Its Type is set from Type.
	Parse resource.ParseOptions
	Limits

	// Identify reports whether the API server still serves the same cluster. It is called whenever
	// a probe succeeds after a failure. An error that is ErrOtherCluster ends Run before anything
	// is read; others are retried. nil: it is not called.
	Identify func(ctx context.Context) error

	Log        *slog.Logger          // default: none
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Limits bounds the sizes of what is read, and the patience of the Reflector.
type Limits struct {
	// PageSize is how many items a page of a list has; default 500.
	PageSize int
	// MaxFrame is the largest watch frame and the largest item of a list, in bytes; default 16 MiB,
	// which is client-go's.
	MaxFrame int64
	// DisableWatchList lists by pages only. By default WatchList is tried first. It is given up
	// permanently where the server does not have it or a proxy swallows its end. After three other
	// failures pages are tried too.
	DisableWatchList bool
	// WatchListTimeout is how long a WatchList may send no object before it is given up; default 2
	// minutes.
	WatchListTimeout time.Duration

	// WatchTimeout is the least time after which the API server is asked to end a watch; the most
	// is twice as long. Default 5 minutes. A watch that is not ended half a minute later is cut.
	WatchTimeout time.Duration
	// Watchdog cuts a watch that sent neither event nor bookmark for so long. The API server sends
	// a bookmark every minute, but none for Events, nor do many aggregated servers: until the first
	// bookmark, silence is no failure. Default 0: only WatchTimeout bounds the silence.
	Watchdog time.Duration
	// ListTimeout is how long the API server may send nothing while it answers a list; default 2
	// minutes.
	ListTimeout time.Duration
	Backoff     Backoff
}

func (l Limits) withDefaults() Limits {
	l.PageSize = cmp.Or(l.PageSize, 500)
	l.MaxFrame = cmp.Or(l.MaxFrame, 16<<20)
	l.WatchListTimeout = cmp.Or(l.WatchListTimeout, 2*time.Minute)
	l.WatchTimeout = cmp.Or(l.WatchTimeout, 5*time.Minute)
	l.ListTimeout = cmp.Or(l.ListTimeout, 2*time.Minute)
	l.Backoff = l.Backoff.withDefaults()
	return l
}

func (c Config) withDefaults() Config {
	c.Parse.Type = c.Type
	c.Limits = c.Limits.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	check(c.Client != nil && c.Client.HTTP != nil && c.Client.Base != nil, "no Client")
	check(c.Client == nil || c.Client.HTTP == nil || c.Client.HTTP.Timeout == 0,
		"Client.HTTP has a Timeout, which would cut every watch")
	check(c.Store != nil, "no Store")
	check(c.Type.Version != "" && c.Type.Resource != "" && c.Type.Kind != "", "Type is incomplete")
	check(c.From != "0", `From is "0", which is no version to resume from`)
	check(c.PageSize > 0 && c.MaxFrame > 0, "PageSize or MaxFrame is negative")
	check(c.WatchTimeout >= time.Second, "WatchTimeout is less than a second")
	check(c.Watchdog >= 0 && c.ListTimeout > 0 && c.WatchListTimeout > 0,
		"Watchdog, ListTimeout or WatchListTimeout is negative")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reflector for %s: %w", c.Type, err)
	}
	return nil
}

// Reflector keeps a Store in sync with one collection of the API server. See New, Run and Status.
type Reflector struct {
	cfg     Config
	url     *url.URL
	log     *slog.Logger
	metrics *metrics
	status  status
	gate    *pauseGate
	prober  *prober // of the clock

	// Run owns all fields below.

	state   state
	backoff backoff
	// expiries is the backoff of 410s alone. A 410 shows plainly that a list is needed, so the
	// first one is followed at once, however many other failures there were; only 410s in a row
	// wait.
	expiries   backoff
	quarantine quarantine
	warnings   warnings
	scope      scope
	// listing is when the first request of a list was sent. isOfClock: the clock knows the
	// resource.
	listing   time.Time
	isOfClock bool
	// interrupted is since when no watch is open that has brought everything; zero while one is,
	// and before the first.
	interrupted time.Time
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
		gate:     newPauseGate(),
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
	beside := &Reflector{cfg: r.cfg, url: r.url, log: r.log}
	r.prober = &prober{resource: cfg.Type.String(), ask: beside.probe, rewound: r.gate.cutStep}
	r.status.s = Status{Phase: Stopped, Version: cfg.From, Relists: map[string]int{}}
	registerQuiet(cfg.Registerer, &r.status)
	registerPaused(cfg.Registerer, r.gate)
	return r, nil
}

// Status returns the current status. It may be called from any goroutine, at any time.
func (r *Reflector) Status() Status { return r.status.get() }

// unstarted is the state before the first step.
var unstarted state

// Run follows the collection until ctx ends, and then returns nil; or until the Store fails, and
// then returns its error. Everything else is retried. Run may be called once.
func (r *Reflector) Run(ctx context.Context) error {
	defer r.status.phase(Stopped)
	if r.cfg.Client.Clock != nil {
		defer r.cfg.Client.Clock.leave(r.prober)
	}
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
// A watch lasts for hours. The code after it is in conclude, so that its variables are not on the
// stack meanwhile: Go shrinks a stack only while less than a quarter of it is used. With 5.0 KB in
// use it stayed at 16 KB, with 3.2 KB it shrinks to 8 KB.
func (r *Reflector) attempt(ctx context.Context) error {
	if r.cfg.Diverged.IsSet() {
		r.state.step = toProbe
	}
	r.leaveAlone(ctx)
	started := time.Now()
	o := r.step(ctx)
	return r.conclude(ctx, started, &o)
}

// conclude decides the next step, and waits after a failed one.
func (r *Reflector) conclude(ctx context.Context, started time.Time, o *stepResult) error {
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
	r.state, pause = before.after(*o)
	r.report(&before, &r.state)
	if clock := r.cfg.Client.Clock; clock != nil {
		clock.avoid(r.prober, retryAfter(o.err))
	}
	if o.err != nil && !o.paused {
		r.metrics.errors.With(reasonOf(o.err)).Inc()
		r.pause(ctx, r.delay(pause), o.err)
	} else if pause.backoff {
		r.pause(ctx, r.delay(pause), errRewindsAgain)
	}
	return nil
}

// leaveAlone waits while the API server, asked by the clock, wants to be left alone.
func (r *Reflector) leaveAlone(ctx context.Context) {
	if r.cfg.Client.Clock == nil {
		return
	}
	if wait := r.cfg.Client.Clock.avoided(r.prober); wait > 0 {
		r.status.phase(BackingOff)
		_ = ratelimit.Sleep(ctx, wait)
	}
}

// step sends one request, or the requests of one list, and reads the answer to its end.
func (r *Reflector) step(ctx context.Context) stepResult {
	switch r.state.step {
	case toProbe:
		r.status.phase(Probing)
		return r.locate(ctx)
	case toList:
		r.status.phase(Listing)
		r.listing = time.Now()
		return r.list(ctx)
	case toWatch:
		if r.beginMove() {
			return stepResult{}
		}
	}
	return r.watch(ctx)
}

// report logs and counts a list that has become due after a step.
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
	case why.Quiet:
		r.log.Info("the API server has forgotten the version since which nothing came: listing "+
			"everything, in case that something did", "resource_version", why.From)
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

// pause shows an error in the status, and waits.
func (r *Reflector) pause(ctx context.Context, delay time.Duration, err error) {
	err = explain(err)
	r.status.set(func(s *Status) {
		s.LastError = err.Error()
		s.NotFound = reasonOf(err) == reasonNotFound
		s.Versionless = errors.Is(err, errVersionless) && r.state.at.version == ""
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

type metrics struct {
	lists, listItems, watches, bookmarks *metric.Counter
	frameBytes                           *metric.Counter
	added, modified, deleted, passed     *metric.Counter
	entered, left                        *metric.Counter
	errors, relists, quarantined         *metric.Counters
	lastSeen                             *metric.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	events := f.Counters("bridge_reflector_events_total",
		"Watch events handed on, by type.",
		"type", "added", "modified", "deleted")
	namespaces := f.Counters("bridge_reflector_namespaces_total",
		"Namespaces that came into the selection or left it while others were watched, by change.",
		"change", "entered", "left")
	return &metrics{
		passed: f.Counter("bridge_reflector_passed_total",
			"Watch events about objects that are not wanted: of other namespaces, of another "+
				"shard, or not selected here by their labels; the last also in lists."),
		entered: namespaces.With("entered"),
		left:    namespaces.With("left"),
		lists: f.Counter("bridge_reflector_lists_total",
			"Lists begun: a paged list or a WatchList counts once per attempt; probes are not "+
				"counted."),
		listItems: f.Counter("bridge_reflector_list_items_total", "Objects read from lists."),
		watches: f.Counter("bridge_reflector_watches_total",
			"Watches that the API server accepted, WatchLists included."),
		bookmarks: f.Counter("bridge_reflector_bookmarks_total", "Bookmarks handed on."),
		frameBytes: f.Counter("bridge_reflector_frame_bytes_total",
			"Bytes of watch frames read, after decompression."),
		quarantined: f.Counters("bridge_reflector_quarantined_total",
			"Frames and list items that could not be understood, by reason.",
			"reason", unreadableReasons...),
		added:    events.With("added"),
		modified: events.With("modified"),
		deleted:  events.With("deleted"),
		errors: f.Counters("bridge_reflector_errors_total",
			"Requests and streams that failed, by reason.",
			"reason", reasons...),
		relists: f.Counters("bridge_reflector_relists_total",
			"Times that everything known had to be replaced by a list, by reason.",
			"reason", relistInitial, resource.ReasonExpired, resource.ReasonRewound,
			resource.ReasonUnreadable),
		lastSeen: f.Gauge("bridge_reflector_last_seen_timestamp_seconds",
			"When the API server last sent an event, a bookmark or an item of a list."),
	}
}

func registerQuiet(reg prometheus.Registerer, s *status) {
	metric.With(reg).GaugeFunc("bridge_reflector_quiet_seconds",
		"How long the API server has sent neither event, bookmark nor item of a list; 0 before "+
			"the first.",
		func() float64 {
			last := s.get().LastSeen
			if last.IsZero() {
				return 0
			}
			return time.Since(last).Seconds()
		})
}

func registerPaused(reg prometheus.Registerer, g *pauseGate) {
	metric.With(reg).FlagFunc("bridge_reflector_paused", "1 while an operator has paused the "+
		"informer.",
		func() bool {
			closed, _ := g.state()
			return closed
		})
}

// relistInitial is the label of a first snapshot, which is no gap and has no reason.
const relistInitial = "initial"
