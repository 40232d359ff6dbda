package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/filter"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/namespaces"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Snapshot says when the objects that exist are published.
type Snapshot string

// The snapshot modes.
const (
	SnapshotInitial Snapshot = "initial" // at the first start; the default
	SnapshotNever   Snapshot = "never"   // changes only
	SnapshotAlways  Snapshot = "always"  // at every start: what is known already as Synced
)

// UnitConfig is one resource of one informer, in one namespace or all. Zero values mean the documented default.
type UnitConfig struct {
	// Informer is its name in the configuration; it is part of every message id.
	Informer string
	Type     resource.Type
	// Named says that the configuration names the resource, rather than everything there is: its absence is a fault.
	Named         bool
	Namespace     string // "" for all
	LabelSelector string
	FieldSelector string
	// SelectHere has LabelSelector evaluated here and not by the API server: it is then known of each object whether it has left, or come in.
	SelectHere bool
	// NamespaceSelector is a label selector of namespaces: only their objects are selected, as the namespaces come, go and change. "" for
	// all. Not beside Namespace.
	NamespaceSelector string
	// Shard is the share of the objects that is this process's.
	Shard resource.Shard
	// Lifts make attributes of what is in the objects.
	Lifts []event.Lift
	// Owners adds the chain to the top controller, as far as it is followed.
	Owners bool
	// Filter says which changes are sent at all.
	Filter   filter.Rules
	Snapshot Snapshot
	// Memory bounds the change log, in bytes; default 16 MiB. The FIFO before it gets a quarter of it.
	Memory int
	// Spool bounds what of the change log lies on disk, in bytes; default 10 GiB. Without a state directory nothing does.
	Spool int64
	// DropOldest drops the oldest of what lies there when Spool is reached, and tells of it; else reading stops.
	DropOldest bool
	// Lag is how old the oldest change may be that a sink has not acknowledged before the unit is not ready; 0 for no limit.
	Lag   time.Duration
	Parse resource.ParseOptions // Type is filled in
	// Redaction names what Parse takes out. When it is another than last time, the state on disk is redacted as Parse says now.
	Redaction string
	Sinks     []BindingConfig
	// Indexes of the unit's Indexer; may be nil.
	Indexes map[string]store.IndexFunc
	// Reflector holds what else is to be set there, for tests of its limits.
	Reflector reflector.Config
}

// BindingConfig sends a unit's changes to a sink.
type BindingConfig struct {
	Sink    string
	Payload event.Payload
	Types   event.Types
	// Filter says which of the unit's changes are sent to this sink.
	Filter filter.Rules
	// Latest sends of the changes of an object that wait for the sink only the newest. Not with DropOldest.
	Latest bool
	// Resync is how often this sink is sent every object again; 0 for never.
	Resync time.Duration
	// Progress is how often at most this sink is told up to which version its stream is complete; 0
	// for never.
	Progress time.Duration
}

// Name is unique among the units of a bridge; the state is kept under it.
func (c *UnitConfig) Name() string {
	name := c.Informer + "/" + c.Type.String()
	if c.Namespace != "" {
		name += "/" + c.Namespace
	}
	return name
}

// scope is what the unit selects. When it changes, the saved position does not cover it any more.
func (c *UnitConfig) scope() string {
	scope := "labels=" + c.LabelSelector + " fields=" + c.FieldSelector
	if c.NamespaceSelector != "" {
		scope += " namespaces=selected" // which, the state says by name: another selector makes namespaces enter and leave
	}
	if !c.Shard.All() {
		scope += shardScope + c.Shard.String()
	}
	return scope
}

// toldScope is what replicas tell each other: progress of one selector of namespaces says nothing of what another selects.
func (c *UnitConfig) toldScope() string {
	if c.NamespaceSelector == "" {
		return c.scope()
	}
	return c.scope() + " namespaces=" + c.NamespaceSelector
}

// shardScope is what of a scope comes before the shard, which is the last part.
const shardScope = " shard="

// narrowing says that a shard of more goes on from where that of fewer was, and that what a shard has no more is another's, whichever it was before.
func (c *UnitConfig) narrowing() store.Narrowing {
	all := *c
	all.Shard = resource.Shard{}
	return store.Narrowing{
		Same: func(scope string) bool {
			rest, _, _ := strings.Cut(scope, shardScope)
			return rest == all.scope()
		},
		From: func(scope string) bool {
			rest, text, sharded := strings.Cut(scope, shardScope)
			before, err := resource.ParseShard(text)
			if sharded && err != nil {
				return false
			}
			return rest == all.scope() && c.Shard.Within(before)
		},
		Keep: func(key resource.Key) bool {
			namespace, name := key.Split()
			return c.Shard.Has(c.Type, namespace, name)
		},
	}
}

// selective says whether anything is selected, beside a namespace.
func (c *UnitConfig) selective() bool {
	return c.NamespaceSelector != "" || c.LabelSelector != "" || c.FieldSelector != ""
}

// selectsHere says whether objects are selected here, by what they are at a time.
func (c *UnitConfig) selectsHere() bool { return c.SelectHere && c.LabelSelector != "" }

// leavable says whether an object may leave what the API server selects while it lives: names do not change.
func (c *UnitConfig) leavable() bool {
	if c.LabelSelector != "" && !c.SelectHere {
		return true
	}
	selector, err := fields.ParseSelector(c.FieldSelector)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	})
}

// unit is one pipeline from the API server to the publishers.
type unit struct {
	cfg       UnitConfig
	name      string
	log       *slog.Logger
	fifo      *deltafifo.FIFO
	indexer   *store.Indexer
	saved     resource.Version // the watermark on disk when the state was opened, "" for none
	informer  *informer.Informer
	reflector *reflector.Reflector
	relays    []*relay              // before the publishers, one for each listener; none where there are no other replicas
	life      uint64                // another for each unit, also of the same name
	relist    bool                  // the position on disk is not enough: it lists
	began     time.Time             // when its state was opened
	selected  *namespaces.Selection // nil without a namespaceSelector
	watchdog  time.Duration
	metrics   *metric.Scope
	ended     chan struct{} // closed when run has returned
	jobs      sync.WaitGroup
	objects   counted
	catching  catching

	mu      sync.Mutex // guards all below
	why     leaving
	reading context.Context         //nolint:containedctx // it is the unit's life, which jobs share
	stop    context.CancelCauseFunc // of reading
	hard    context.Context         //nolint:containedctx // see reading
	abort   context.CancelCauseFunc // of everything
	busy    bool                    // a snapshot is being sent
}

// lives counts units.
var lives atomic.Uint64

// newUnit opens the unit's state and connects its stages. With relist the position on disk is not
// enough. unclean says that the run of the unit before this one may have sent what is not known on disk.
func (b *Bridge) newUnit(cfg UnitConfig, relist, unclean bool) (*unit, error) {
	u := &unit{
		cfg: cfg, name: cfg.Name(), ended: make(chan struct{}), life: lives.Add(1), relist: relist,
	}
	u.log = b.log.With("informer", cfg.Informer)
	if cfg.Namespace != "" {
		u.log = u.log.With("namespace", cfg.Namespace)
	}
	u.metrics = metric.NewScope(b.cfg.Registerer, prometheus.Labels{
		"informer": cfg.Informer, "resource": cfg.Type.String(), "namespace": cfg.Namespace,
	})
	u.metrics.Begin()
	addInformer := func(b *Bridge, reg prometheus.Registerer) error { return u.addInformer(b, reg, unclean) }
	steps := []func(*Bridge, prometheus.Registerer) error{u.openState, u.addFIFO, addInformer, u.addReflector}
	for _, step := range steps {
		if err := step(b, u.metrics); err != nil {
			u.metrics.End()
			return nil, fmt.Errorf("informer %s: %w", u.name, err)
		}
	}
	b.committer.Track(u.informer.Log())
	return u, nil
}

func (u *unit) openState(b *Bridge, _ prometheus.Registerer) (err error) {
	u.indexer, err = b.cfg.DB.Indexer(store.IndexerConfig{
		Name: u.name, Scope: u.cfg.scope(), Narrowing: u.cfg.narrowing(), Type: u.cfg.Type, Indexes: u.cfg.Indexes, ExactBodies: u.exactBodies(),
	})
	if err != nil {
		return err
	}
	if err := u.redactState(); err != nil {
		return err
	}
	position, err := u.indexer.Position()
	u.saved, u.began = position.Version, time.Now()
	return err
}

// exactBodies says whether something needs objects exactly as they were at a version, rather than to show the last state of one that is gone: as
// the old object of an update, for a selector that looks into them, as the last state before an object left, to be sent again, to make attributes, or in an index.
func (u *unit) exactBodies() bool {
	c := &u.cfg
	exact := c.selectsHere() || c.Owners || len(c.Lifts) > 0 || len(c.Indexes) > 0 || u.selector(c.Filter) != nil
	for _, b := range c.Sinks {
		exact = exact || b.Resync > 0 || b.Payload.NeedsOld() || u.selector(b.Filter) != nil
	}
	return exact
}

// redactState takes out of the state on disk what is to be taken out now and was not before. It must not come back as the old object of
// a change, or as the last state of a deleted object.
func (u *unit) redactState() error {
	opts := u.cfg.Parse
	opts.Type = u.cfg.Type
	tag := ""
	if opts.Redacts() {
		tag = u.cfg.Redaction
	}
	before, err := u.indexer.Redaction()
	if err != nil || before == tag {
		return err
	}
	if tag != "" {
		if err := changelog.Redact(u.indexer, opts.Again()); err != nil {
			return fmt.Errorf("what the configuration takes out now is still in the state directory, and can't be taken out there: %w", err)
		}
	}
	return u.indexer.SetRedaction(tag)
}

// fifoBytes is the FIFO's bound. What waits in it could as well wait in the log: it only has to keep reading and deciding from waiting for
// each other.
func (u *unit) fifoBytes() int {
	return max(cmp.Or(u.cfg.Memory, 16<<20)/4, 1)
}

func (u *unit) addFIFO(_ *Bridge, reg prometheus.Registerer) (err error) {
	u.fifo, err = deltafifo.New(deltafifo.Config{
		MaxBytes: u.fifoBytes(), Known: u.indexer, Resumed: u.from() != "", Registerer: reg,
	})
	return err
}

func (u *unit) addInformer(b *Bridge, reg prometheus.Registerer, unclean bool) (err error) {
	var listeners []informer.ListenerConfig
	for _, binding := range u.cfg.Sinks {
		out := b.outlets.get(binding.Sink)
		if out == nil {
			return fmt.Errorf("there is no sink %q", binding.Sink)
		}
		maker, err := event.NewMaker(event.MakerConfig{
			Cluster: b.cfg.Cluster, Informer: u.cfg.Informer, Type: u.cfg.Type, Namespace: u.cfg.Namespace, Payload: binding.Payload,
			Types: binding.Types, Lifts: u.cfg.Lifts, Shard: u.cfg.Shard,
			Selective: u.cfg.LabelSelector != "" || u.cfg.FieldSelector != "", Exact: u.cfg.selectsHere() && !u.cfg.leavable(),
			Omits: u.omits(&binding), Trace: b.trace(u.cfg.Informer, binding.Sink),
		})
		if err != nil {
			return err
		}
		listeners = append(listeners, informer.ListenerConfig{
			Name: binding.Sink, Publisher: u.behindRelay(b, out), Maker: maker, Selector: u.selector(binding.Filter), Resync: binding.Resync, Progress: binding.Progress, Latest: binding.Latest,
			Run: b.process,
		})
	}
	var owners func(*resource.Object) []resource.Owner
	if u.cfg.Owners {
		owners = b.owners
		b.ownerCache.enable()
	}
	u.informer, err = informer.New(informer.Config{
		Name: u.name, Type: u.cfg.Type, FIFO: u.fifo, Indexer: u.indexer, Committer: b.committer, Listeners: listeners,
		Selector: u.selector(u.cfg.Filter), Owners: owners, OnDelete: b.ownerCache.deleted,
		Namespaces: u.cfg.NamespaceSelector != "", Selection: u.selection(b), Selective: u.cfg.selective(), Leavable: u.cfg.leavable(),
		Enterable: u.cfg.selectsHere() && u.cfg.Snapshot != SnapshotNever,
		LogBytes:  u.cfg.Memory, SpoolBytes: u.spool(b), DropOldest: u.cfg.DropOldest, Resnapshot: u.cfg.Snapshot == SnapshotAlways, Unclean: unclean, Succeeds: u.succeeds(b), Forgotten: u.forgotten(b), Holds: u.holds(b), Diverged: func() { u.reflector.Diverged() },
		Log: u.log.With("resource", u.cfg.Type.String()), Registerer: reg,
	})
	return err
}

// trace makes traceparents; nil for none.
func (b *Bridge) trace(informer, sink string) func(source, id string) string {
	if b.cfg.Trace == nil {
		return nil
	}
	return b.cfg.Trace(informer, sink)
}

// omits are the configuration's keys by which a sink is not sent every version of an object.
func (u *unit) omits(b *BindingConfig) (keys []string) {
	if b.Latest {
		keys = append(keys, "latest")
	}
	keys = append(keys, u.cfg.Filter.Keys(u.cfg.Type)...)
	keys = append(keys, b.Filter.Keys(u.cfg.Type)...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// selector of rules, nil when they keep nothing back.
func (u *unit) selector(rules filter.Rules) informer.Selector {
	if f := filter.New(rules, u.cfg.Type); f != nil {
		return f
	}
	return nil
}

// spool is the bound of the log on disk. In memory mode that would be memory too, which is bounded already.
func (u *unit) spool(b *Bridge) int64 {
	if b.cfg.DB.Dir() == "" {
		return -1
	}
	return u.cfg.Spool
}

func (u *unit) addReflector(b *Bridge, reg prometheus.Registerer) (err error) {
	cfg := u.cfg.Reflector
	cfg.Client, cfg.Store, cfg.Log, cfg.Registerer = b.cfg.Client, u.fifo, u.log, reg
	cfg.Identify = b.cfg.Identify
	cfg.Type, cfg.Namespace = u.cfg.Type, u.cfg.Namespace
	if err := u.addSelectors(&cfg); err != nil {
		return err
	}
	cfg.Parse = u.cfg.Parse
	cfg.Parse.Type = u.cfg.Type
	cfg.Watchdog = cmp.Or(cfg.Watchdog, b.cfg.Watchdog)
	u.watchdog = cfg.Watchdog
	cfg.Quarantine, cfg.Skip, cfg.Unselected = u.fifo.Quarantine, u.fifo.Skip, u.fifo.Unselected
	cfg.Snapshot = u.cfg.Snapshot != SnapshotNever
	cfg.From, cfg.Reached = u.from(), u.saved
	if err := u.addNamespaces(b, &cfg); err != nil {
		return err
	}
	if !u.cfg.Shard.All() {
		cfg.Progress = u.fifo.Progress
		cfg.Selects = func(obj *resource.Object) bool { return u.cfg.Shard.Has(u.cfg.Type, obj.Namespace, obj.Name) }
	}
	u.reflector, err = reflector.New(cfg)
	if err == nil {
		err = u.compareAnew()
	}
	if err == nil {
		u.newCatching(reg)
		u.registerBehind(reg)
		u.registerSynced(reg)
		u.registerObjects(reg)
	}
	return err
}

// compareAnew has everything listed and compared by equality, where the run before had found the server's history to be another and not come to
// the end of that.
func (u *unit) compareAnew() error {
	undone, err := u.indexer.Diverged()
	if undone {
		u.reflector.Diverged()
	}
	return err
}

// addSelectors has the API server evaluate the selectors, or the reflector the one of labels.
func (u *unit) addSelectors(cfg *reflector.Config) error {
	cfg.LabelSelector, cfg.FieldSelector = u.cfg.LabelSelector, u.cfg.FieldSelector
	if !u.cfg.selectsHere() {
		return nil
	}
	selector, err := labels.Parse(u.cfg.LabelSelector)
	if err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	cfg.LabelSelector = ""
	cfg.Matches = func(obj *resource.Object) bool { return selector.Matches(obj.Labels()) }
	return nil
}

// addNamespaces has the reflector select namespaces, where the unit does.
func (u *unit) addNamespaces(b *Bridge, cfg *reflector.Config) error {
	if u.cfg.NamespaceSelector == "" {
		return nil
	}
	selected, err := b.namespaces.Select(u.cfg.NamespaceSelector)
	if err != nil {
		return err
	}
	u.selected = selected
	saved, err := u.indexer.Namespaces()
	if err != nil {
		return err
	}
	cfg.Namespaces, cfg.Progress, cfg.Selected = selected, u.fifo.Progress, map[string]resource.NamespaceState{}
	cfg.AsOf = map[string]resource.Version{}
	for name, n := range saved {
		cfg.Selected[name] = n.State
		if n.AsOf != "" {
			cfg.AsOf[name] = n.AsOf
		}
	}
	return nil
}

// from is the version to resume after, "" for none.
func (u *unit) from() resource.Version {
	if u.cfg.Snapshot == SnapshotAlways || u.relist {
		return ""
	}
	return u.saved
}
