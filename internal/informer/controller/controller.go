package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/store"
)

// Config is what the stream is of, and what is known of earlier runs and other replicas. Zero
// values mean the documented default.
type Config struct {
	// Selector decides for all listeners which changes are sent; nil for all changes.
	Selector Selector
	// Namespaces is set where the stream is of selected namespaces.
	Namespaces bool
	// Selective is set where a selector limits the stream, so that deletes have their cause where
	// it is known. Leavable: the API server evaluates a selector that an object may leave, and
	// sends that as a delete.
	Selective, Leavable bool
	// Enterable is set where the bridge selects objects by their current state, and knows all
	// objects selected before: an update of an unknown object means that it has entered.
	Enterable bool
	// Owners returns an object's controller, its controller's controller, and so on, for the
	// events; nil for none.
	Owners func(obj *resource.Object) []resource.Owner
	// Changed sets which parts of its object an update has changed, where that is known.
	Changed bool
	// OnDelete is called with the last state of an object before it is forgotten. May be nil.
	OnDelete func(obj *resource.Object)
	// Resnapshot publishes every object at the first list: objects that the settled state covers as
	// Synced.
	Resnapshot bool
	// Unclean: the run before this one may have sent events that the settled state does not cover.
	// If the server's history went back since, any object may have been sent in a state that was
	// lost, so all are published.
	Unclean bool
	// Succeeds reports whether other replicas have published before this one, and up to which
	// version at least; "" for unknown. A first list is a gap then, in which objects may have been
	// deleted. nil: there are no replicas.
	Succeeds func() (from resource.Version, led bool)
	// Diverged is set when a list shows that the API server's history is another than before,
	// though its version is not lower: an object is in an older state. A list after a rewind has to
	// follow. nil: the controller does not check.
	Diverged *ratelimit.Signal
	// Since returns the latest known time after which everything later than a version was made; see
	// reflector.Clock. nil: nothing is known.
	Since func(v resource.Version) (at time.Time, isKnown bool)
	// Opened returns when the API server first accepted a watch, and Reopened when it did so after
	// the last interruption; the zero time for never. They are called where Since is set.
	Opened, Reopened func() time.Time
	// Resumed is since when nobody has watched, where the watch continues that of an earlier run,
	// as far as that is known. What was under way by then is found by its own bounds. Restarted is
	// when this run began, where the earlier one was another process: what was made before became
	// known late, however short the time was.
	Resumed   event.Unwatched
	Restarted time.Time
	// EarlierRuns returns which brokers hold events of an earlier run that the state does not know
	// any more. The first list waits for the answer. nil: there are none.
	EarlierRuns func(ctx context.Context) EarlierRuns
}

// Selector decides which changes of objects are sent: *filter.Filter.
type Selector interface {
	// Rejects returns why a change is kept back, "" when it is sent. An error is counted and
	// logged, and keeps nothing back.
	Rejects(c *event.Change) (reason string, err error)
	// NeedsOld reports whether updates have to come with the old object.
	NeedsOld() bool
}

// EarlierRuns are the brokers that hold events of an earlier run.
type EarlierRuns struct {
	// Holding are the sinks, by name, whose brokers do. For them the first list is a gap, in which
	// objects may have been deleted.
	Holding []string
	// Epoch is the latest of these events. All events from then on have a later one: else they
	// would be taken for those that the brokers hold.
	Epoch int
	// Unasked are the sinks that are unavailable.
	Unasked []string
}

// Env is the stages around the controller.
type Env struct {
	FIFO    Queue
	Indexer *store.Indexer
	Log     *changelog.Log
	// Listeners of the Log, in their order.
	Listeners []Listener
	// Gaps is NewGaps'.
	Gaps   *metric.Counters
	Logger *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// Queue is the source of deltas: *deltafifo.FIFO.
type Queue interface {
	Pop(ctx context.Context, p deltafifo.Processor) error
}

// Listener is what the controller has to know of a listener.
type Listener struct {
	// Name of the sink.
	Name string
	// Selector decides which changes are sent to this listener; nil for all that the Config's lets
	// through.
	Selector Selector
	// NeedsOld is set where the listener's events need the object before an update.
	NeedsOld bool
	// Omits are the keys of the configuration by which the listener's stream leaves versions out.
	Omits []string
	// Progress is how often at most the listener is sent up to which version its stream is
	// complete; 0 for never.
	Progress time.Duration
}

// promptBytes is the size of an object before which all changes that wait for no announcement are
// handed on. Deciding takes time in proportion to the object: filters decode it.
const promptBytes = resource.LargeBytes

// Controller is the loop between the FIFO and the log. The goroutine of Run owns its fields unless
// they say otherwise.
type Controller struct {
	cfg       Config
	env       Env
	metrics   *metrics
	announcer *announcer
	selectors selectors
	seen      seen // may be read concurrently
	scope     *scope
	batch     batch
	list      List          // that is being worked through
	postponed bool          // the gap of list is; see emitPostponedGap
	pending   bool          // as in recovery.Found, when the run began
	listed    event.Listing // its items so far
	// olderItems are the known versions of objects of which the list has an older state.
	olderItems   map[resource.Key]resource.Version
	decisions    []Decision
	brokersAsked bool          // whether sinks hold events of an earlier run
	number       atomic.Uint64 // of the last change; set by Run alone
	epoch        int           // of the server's history
	now          time.Time
	watchState
	// unclean: an earlier run has sent events that are not known here, and this run has seen
	// neither a list nor a bookmark. Set by Run alone.
	unclean atomic.Bool
}

// watchState is what is known of the watch.
type watchState struct {
	// diverged: a list has shown that the server's history is another, and the list that follows
	// from that has not begun.
	diverged bool
	// unwatched is a time that no progress has reported.
	unwatched event.Unwatched
	// blind: the watch continues that of an earlier run, and nothing is known of the time between.
	blind bool
	// live is when the watch was last heard of; zero where that is not known.
	live time.Time
	// clocksWarned: a warning has said that the API server's clock is ahead.
	clocksWarned bool
}

// New takes over the state of the run before, and starts nothing.
func New(cfg Config, env Env) (*Controller, error) {
	c := &Controller{
		cfg: cfg, env: env, metrics: newMetrics(env.Registerer), selectors: newSelectors(&cfg, &env),
		announcer: newAnnouncer(&env), olderItems: map[resource.Key]resource.Version{},
		list: List{Selective: cfg.Selective, Leavable: cfg.Leavable, Enterable: cfg.Enterable},
	}
	c.unclean.Store(cfg.Unclean)
	namespaces, err := env.Indexer.Meta().Namespaces()
	if err != nil {
		return nil, err
	}
	c.scope = newScope(namespaces)
	return c, c.resume()
}

// IsClean reports whether every event ever sent is known: the run before has ended in order, or
// this one has read from the API server what it sent last.
func (c *Controller) IsClean() bool { return !c.unclean.Load() }

// Newest returns the number of the last change that was decided.
func (c *Controller) Newest() uint64 { return c.number.Load() }

// Run pops and decides until the FIFO is closed and empty, then closes the log.
func (c *Controller) Run(ctx context.Context) (err error) {
	defer c.env.Log.Close()
	defer func() {
		if err != nil { // what was decided may be lost, and what the run before has sent of it
			c.unclean.Store(c.cfg.Unclean)
		}
	}()
	ctx, stop := context.WithCancel(ctx)
	defer c.announcer.writing.Wait()
	defer stop()
	if c.cfg.Resnapshot {
		c.list.Round = time.Now().Unix()
	}
	if err := c.resume(); err != nil { // once more: an epoch may have been adopted
		return err
	}
	c.epoch = c.seen.now()
	c.resumeWatch()
	if err := c.reportOmits(ctx); err != nil {
		return err
	}
	for {
		err := c.env.FIFO.Pop(ctx, c)
		if errors.Is(err, deltafifo.ErrClosed) {
			return c.announcer.wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Process decides deltas and hands their changes to the log.
func (c *Controller) Process(ctx context.Context, deltas deltafifo.Deltas) error {
	c.now = time.Now()
	for i := range deltas {
		if c.isDue(&deltas[i]) {
			if err := c.handOn(ctx); err != nil {
				return err
			}
		}
		if err := c.decideAndMark(ctx, &deltas[i]); err != nil {
			return err
		}
	}
	return c.handOn(ctx)
}

// isDue reports whether the decided changes are handed on before the next delta. Changes that need
// a write to the disk are handed on in large parts: announcements, and the items of a list.
func (c *Controller) isDue(next *deltafifo.Delta) bool {
	isLarge := next.Object != nil && next.Object.Size() > promptBytes
	return c.batch.bytes > decidedBytes ||
		isLarge && len(c.batch.changes) > 0 && len(c.batch.news)+len(c.batch.listed) == 0
}

// TryProcess decides and hands on changes of known objects, and progress. It stops where something
// has to be waited for: an announcement, room, the disk, a list, a resync.
func (c *Controller) TryProcess(deltas deltafifo.Deltas) (n int, err error) {
	hasToReport := !c.unwatched.Since.IsZero() || c.selectors.omits.due != 0
	if c.diverged || c.postponed || hasToReport || !c.env.Log.HasRoom() || !c.announcer.isIdle() {
		return 0, nil
	}
	c.now = time.Now()
	for n < len(deltas) {
		d := &deltas[n]
		known, err := c.known(d)
		if err != nil || !isPlain(d, &known) {
			break // an error comes again in Process
		}
		m := c.mark(d)
		if d.Type != deltafifo.Bookmark {
			if err := c.decideKnown(d, &known); err != nil {
				return n, err
			}
		}
		c.rank(m)
		n++
	}
	c.env.Log.Append(c.batch.changes)
	c.env.Log.Offer()
	c.batch.reset()
	return n, nil
}

// isPlain reports whether deciding a delta announces nothing and waits for nothing.
func isPlain(d *deltafifo.Delta, known *KnownState) bool {
	switch d.Type {
	case deltafifo.Bookmark:
		return d.Progress
	case deltafifo.Updated, deltafifo.Deleted:
		isAlive := known.Found && !known.Record.Deleted && known.Record.UID == d.Object.UID
		return isAlive && len(known.Left) == 0
	default:
		return false
	}
}

// decideAndMark decides a delta, and puts its mark behind its changes. While the server's history
// has diverged there is no mark: no more of the known history comes, and the other history is not
// decided yet.
func (c *Controller) decideAndMark(ctx context.Context, d *deltafifo.Delta) error {
	m := c.mark(d)
	if m.Kind == changelog.Event || m.Kind == changelog.Bookmark {
		c.reportNewOmits(m.Version.Before())
	}
	if err := c.decide(ctx, d); err != nil {
		return err
	}
	c.rank(m)
	return nil
}

// mark returns the mark of a delta. Call it before the delta is decided.
func (c *Controller) mark(d *deltafifo.Delta) changelog.Mark {
	m := markOf(d)
	if c.diverged || m.Kind == changelog.ListEnd && c.diverges(m.Version) {
		return changelog.Mark{}
	}
	if m.Kind == changelog.Event || m.Kind == changelog.Bookmark {
		c.live = c.now
	}
	return m
}

// markOf returns the mark of a delta while the server's history is the known one.
func markOf(d *deltafifo.Delta) (m changelog.Mark) {
	switch d.Type {
	case deltafifo.Bookmark:
		return changelog.Mark{Kind: changelog.Bookmark, Version: d.Version}
	case deltafifo.ReplaceEnd:
		if !d.Relist.Partial() { // else the stream continues from where it was
			return changelog.Mark{Kind: changelog.ListEnd, Version: d.Version}
		}
	case deltafifo.Added, deltafifo.Updated, deltafifo.Unselected, deltafifo.Deleted:
		if !d.FinalStateUnknown && !d.Listed { // else it is part of a list
			return changelog.Mark{Kind: changelog.Event, Version: d.Object.Version, Key: d.Key}
		}
	default:
	}
	return m
}

func (c *Controller) decide(ctx context.Context, d *deltafifo.Delta) error {
	switch d.Type {
	case deltafifo.Bookmark:
		if !d.Progress && !c.diverged {
			c.unclean.Store(false)
			c.blind = false
			c.reportWatched(d.Version)
			c.reportProgress(d.Version)
		}
		return nil
	case deltafifo.ReplaceBegin:
		return c.beginReplace(ctx, d)
	case deltafifo.ReplaceEnd:
		return c.endReplace(ctx, d)
	case deltafifo.Quarantined:
		return c.quarantined(d)
	case deltafifo.Lost:
		c.reportLost(d)
		return nil
	default:
		return c.decideObject(d)
	}
}

func (c *Controller) decideObject(d *deltafifo.Delta) error {
	known, err := c.known(d)
	if err != nil {
		return err
	}
	return c.decideKnown(d, &known)
}

func (c *Controller) decideKnown(d *deltafifo.Delta, known *KnownState) error {
	first, err := c.isFirstOfList(d)
	if err != nil {
		return err
	}
	c.account(d, known)
	c.list.Unclean = c.unclean.Load()
	c.decisions = Decide(c.decisions[:0], d, known, &c.list)
	if len(c.decisions) == 0 && d.Object != nil && known.Found {
		c.metrics.skipped.Inc()
	}
	if c.postponed && first {
		c.emitPostponedGap(d, known)
	}
	for i := range c.decisions {
		if err := c.carryOut(d, known, &c.decisions[i]); err != nil {
			return err
		}
	}
	clear(c.decisions)
	return nil
}

func (c *Controller) known(d *deltafifo.Delta) (k KnownState, err error) {
	if d.Key == "" {
		return k, nil
	}
	k.Record, k.Found, err = c.env.Indexer.Get(d.Key)
	k.Left = c.env.Indexer.Announcements().Left(d.Key)
	k.DeleteAnnounced = c.env.Indexer.Announcements().DeleteAnnounced(d.Key, k.Record.UID)
	k.Changed = d.Type == deltafifo.Sync && c.env.Indexer.ChangedSince(d.Key, d.After)
	k.Outside = c.cfg.Namespaces && !c.scope.stateOf(d.Key).State.Selected()
	return k, err
}

// carryOut makes a change of a decision. A Synced whose exact state is not known makes none: an
// earlier state must not come behind the known one.
func (c *Controller) carryOut(d *deltafifo.Delta, known *KnownState, dec *Decision) error {
	if err := c.findObjects(dec, d); err != nil {
		return err
	}
	if err := c.attribute(dec, d, known); err != nil {
		return err
	}
	c.bound(dec, d) // it may emit, and take a number, before what follows
	switch obj := dec.Object; {
	case dec.Op == event.Synced && (obj == nil || obj.Version != dec.Version):
		return nil
	case dec.Op == event.Added:
		isUnknown := !known.Found && len(known.Left) == 0
		c.batch.news = append(c.batch.news, store.Announcement{
			Key: dec.Key, Object: obj, Seq: c.number.Load() + 1, Unknown: isUnknown,
		})
	case dec.Forget:
		namespace, _ := dec.Key.Split()
		c.scope.leave(namespace)
	}
	if dec.GoneAsOf != "" || dec.Inferred && dec.Left != "" {
		c.announceDelete(dec)
	}
	ch := c.newChange(dec.Change)
	ch.DeltaVersion, ch.OfList = dec.DeltaVersion, dec.OfList
	ch.Written, ch.Forget = dec.Written, dec.Forget
	ch.For = changelog.Listeners(d.Listeners) // none for everyone
	c.emit(ch)
	return nil
}

// announceDelete announces an inferred delete, with the version as of which its object is gone. If
// this run dies before the delete is settled, the next list is of a later version. Then the event
// has the version that was announced. An object that is selected by then comes as Added.
func (c *Controller) announceDelete(dec *Decision) {
	gone := store.InferredDelete{
		UID: dec.UID, Version: dec.Before, AsOf: cmp.Or(dec.GoneAsOf, dec.Version), Epoch: c.epoch,
	}
	if dec.GoneAsOf != "" { // else the version is that of the list's item
		gone = c.env.Indexer.Announcements().Owed(dec.Key, gone)
		dec.Version, dec.Before, dec.GoneAsOf = gone.Version, gone.Version, gone.AsOf
	}
	c.batch.news = append(c.batch.news,
		store.Announcement{Key: dec.Key, Gone: &gone, Seq: c.number.Load() + 1})
}

// findObjects loads the objects of a decision that have not come with the delta, before the Indexer
// has the newest state in their place.
func (c *Controller) findObjects(dec *Decision, d *deltafifo.Delta) (err error) {
	switch dec.Origin {
	case FromState:
		dec.Object, err = c.env.Indexer.Object(dec.Key)
	case FromAnnouncement:
		dec.Object, err = c.env.Indexer.Announcements().LeftObject(dec.Key, dec.UID)
	case FromDelta:
	}
	if err != nil || !(c.selectors.needsOld || c.cfg.Changed) || dec.Op != event.Updated {
		return err
	}
	old, err := c.env.Indexer.Object(dec.Key)
	if err != nil || old == nil || old.Version != dec.Before {
		return err
	}
	if c.cfg.Changed && dec.Object != nil && c.follows(dec, d) {
		dec.Changed = changedParts(old, dec.Object)
	}
	if c.selectors.needsOld { // else it would take its room in queues for nothing
		dec.Old = old
	}
	return nil
}

// changedParts returns the value of a Change's Changed. It is not known between two versions of the
// API, whose forms differ.
func changedParts(old, changed *resource.Object) string {
	if old.APIVersion != changed.APIVersion {
		return ""
	}
	return cmp.Or(strings.Join(diff.Parts(old.Raw, changed.Raw), ","), event.NothingChanged)
}

type metrics struct {
	changes *metric.Counters
	skipped *metric.Counter
	// filtered and filterErrors are by sink, "" for the informer's own selector.
	filtered     *prometheus.CounterVec
	filterErrors *metric.Counters
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	return &metrics{
		changes: f.Counters("bridge_informer_changes_total",
			"Changes decided by the controller, by op.",
			"op", string(event.Added), string(event.Updated), string(event.Deleted), string(event.Synced)),
		skipped: f.Counter("bridge_informer_covered_total",
			"Deltas that the settled state of their object covered already, so that they are no change."),
		filtered: f.CountersOf("bridge_informer_filtered_total",
			"Changes that were kept back from a sink, or from all (sink empty), by reason.",
			"sink", "reason"),
		filterErrors: f.Counters("bridge_informer_filter_errors_total",
			"Changes that were sent because the filter of a sink, or of all (sink empty), failed.",
			"sink"),
	}
}

// NewGaps makes the counters of gaps, by reason. Some gaps only a listener knows of.
func NewGaps(reg prometheus.Registerer) *metric.Counters {
	return metric.With(reg).Counters("bridge_informer_gaps_total",
		"Gaps reported, by reason.",
		"reason", resource.ReasonExpired, resource.ReasonRewound, resource.ReasonUnreadable,
		reasonInterrupted,
		resource.ReasonDropped, resource.ReasonForgotten, resource.ReasonLost, reasonTakeover)
}
