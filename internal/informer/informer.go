package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/checkpoint"
	"github.com/kubebridge/bridge/internal/informer/controller"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/kube/namespaces"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Env is shared by all informers of a bridge.
type Env struct {
	Cluster   string
	Client    *reflector.Client
	DB        *store.DB
	Committer *checkpoint.Committer
	Spooler   *changelog.Spooler
	// Budget bounds the memory of all informers together; nil for the bound of each alone.
	Budget     *ratelimit.Budget
	Namespaces *namespaces.Watcher
	// Sink returns a sink that runs; ok is false when there is none of that name.
	Sink func(name string) (s Sink, ok bool)
	// Replicas is nil where there are no other replicas.
	Replicas Replicas
	// Owners returns an object's controller, its controller's controller, and so on. OnDelete is
	// called before an object is forgotten.
	Owners   func(obj *resource.Object) []resource.Owner
	OnDelete func(obj *resource.Object)
	// Trace returns the function that makes the traceparent of an informer's events for a sink; may
	// be nil.
	Trace func(informer, sink string) func(source, id string) string
	// Watchdog and Identify as in reflector.Config.
	Watchdog   time.Duration
	Identify   func(ctx context.Context) error
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Sink is where a listener's events go.
type Sink struct {
	Publisher *publisher.Publisher
	// Key distinguishes sinks of replicas, which may have one name and other targets.
	Key string
}

// Replicas is what this replica knows of the others.
type Replicas interface {
	// OthersLed reports whether another replica leads or has led.
	OthersLed() bool
	// Succeeds reports whether others have published this informer's changes before, and up to
	// which version at least.
	Succeeds(p *Informer) (from resource.Version, led bool)
}

// Start is how an informer begins.
type Start struct {
	// Relist: the position on disk is not enough, so it lists.
	Relist bool
	// Unclean: the run of this unit before may have sent events that are not known on disk.
	Unclean bool
	// Run is that of processor.Config.
	Run string
}

// Informer runs one unit, from the API server to the publishers. Its methods may be called
// concurrently, except those of its life.
type Informer struct {
	// Replica, Snapshots and Objects are constant after New.
	Replica   *Replica
	Snapshots *Snapshots
	Objects   *Objects

	cfg       Config
	env       Env
	name      string
	log       *slog.Logger
	fifo      *deltafifo.FIFO
	indexer   *store.Indexer
	state     openedState
	stages    *Stages
	reflector *reflector.Reflector
	// diverged is set by the controller when a list shows that the server's history is another. The
	// reflector watches it.
	diverged *ratelimit.Signal
	id       uint64 // different for each informer, also of one unit
	start    Start
	selected *namespaces.Selection // nil without a namespaceSelector
	metrics  *metric.Scope
	accounts accounts
	refresh  bodyRefresh
	life     life
}

// openedState is what was found when the state was opened.
type openedState struct {
	at       time.Time
	saved    resource.Version     // the watermark on disk, "" for none
	recovery controller.StartCase // what to read with; the first list decides on its gap
}

// ids counts informers.
var ids atomic.Uint64

// New opens the state and connects the stages. It starts nothing.
func New(cfg Config, env Env, start Start) (*Informer, error) {
	i := &Informer{
		cfg: cfg, env: env, name: cfg.Name(), id: ids.Add(1), start: start, life: newLife(),
		diverged: &ratelimit.Signal{},
	}
	i.Replica, i.Snapshots, i.Objects = &Replica{informer: i}, &Snapshots{informer: i}, &Objects{informer: i}
	i.log = env.Log.With("informer", cfg.Informer)
	if cfg.Namespace != "" {
		i.log = i.log.With("namespace", cfg.Namespace)
	}
	i.metrics = metric.NewScope(env.Registerer, prometheus.Labels{
		"informer": cfg.Informer, "resource": cfg.Type.String(), "namespace": cfg.Namespace,
	})
	i.accounts = accounts{fifo: env.Budget.Account(), log: env.Budget.Account()}
	for _, step := range []func() error{i.openState, i.addFIFO, i.addStages, i.addReflector} {
		if err := step(); err != nil {
			i.accounts.close()
			return nil, fmt.Errorf("informer %s: %w", i.name, err)
		}
	}
	i.registerMetrics()
	i.metrics.Begin()
	env.Committer.Track(i.stages.Log())
	return i, nil
}

// Name returns the unit's name.
func (i *Informer) Name() string { return i.name }

// Config returns the configuration, which must not be changed.
func (i *Informer) Config() *Config { return &i.cfg }

// Log returns the logger with the informer's attributes.
func (i *Informer) Log() *slog.Logger { return i.log }

func (i *Informer) openState() (err error) {
	i.indexer, err = i.env.DB.Indexer(store.IndexerConfig{
		Name: i.name, Scope: i.cfg.Scope(), Narrowing: i.cfg.narrowing(), Type: i.cfg.Type,
		ExactBodies: i.cfg.needsExactBodies(), Indexes: i.cfg.indexes(),
	})
	if err != nil {
		return err
	}
	if err := i.redactState(); err != nil {
		return err
	}
	position, errPosition := i.indexer.Meta().Position()
	pending, errPending := i.indexer.Meta().ListPending()
	diverged, err := i.indexer.Meta().Diverged()
	i.state.saved, i.state.at = position.Version, time.Now()
	i.state.recovery = controller.Recover(&controller.StartState{
		Diverged: diverged, Pending: pending, Watermark: i.state.saved != "", Lists: i.lists(),
		NoSnapshot: i.cfg.Snapshot == SnapshotNever,
	})
	return errors.Join(errPosition, errPending, err)
}

// lists reports whether the informer lists everything, whatever is known.
func (i *Informer) lists() bool { return i.cfg.Snapshot == SnapshotAlways || i.start.Relist }

// redactState redacts the state on disk by rules that are new. Else a redacted value would come
// back as the old object of a change, or as the last state of a deleted object.
func (i *Informer) redactState() error {
	opts := i.cfg.Parse
	opts.Type = i.cfg.Type
	tag := ""
	if opts.Redacts() {
		tag = i.cfg.Redaction
	}
	before, err := i.indexer.Meta().Redaction()
	if err != nil || before == tag {
		return err
	}
	if tag != "" {
		if err := changelog.Redact(i.indexer, opts.Again()); err != nil {
			return fmt.Errorf("what the configuration takes out now is still in the state directory, "+
				"and can't be taken out there: %w", err)
		}
	}
	return i.indexer.Meta().SetRedaction(tag)
}

// addFIFO makes the FIFO, with a quarter of the memory. Deltas pending in the FIFO could as well be
// in the log: the FIFO only keeps reading and deciding from waiting for each other.
func (i *Informer) addFIFO() (err error) {
	i.fifo, err = deltafifo.New(deltafifo.Config{
		MaxBytes: max(cmp.Or(i.cfg.Memory, 16<<20)/4, 1), Known: i.indexer.Listing(),
		Resumed: i.From() != "", Account: i.accounts.fifo,
		Registerer: i.metrics,
	})
	return err
}

func (i *Informer) addStages() (err error) {
	var listeners []ListenerConfig
	for n := range i.cfg.Sinks {
		listener, err := i.listener(&i.cfg.Sinks[n])
		if err != nil {
			return err
		}
		listeners = append(listeners, listener)
	}
	cfg := StagesConfig{
		Name: i.name, Type: i.cfg.Type, Shard: i.cfg.Shard,
		FIFO: i.fifo, Indexer: i.indexer, Committer: i.env.Committer, Listeners: listeners,
		ChangeLog: changelog.Config{
			MemoryBytes: i.cfg.Memory, Account: i.accounts.log, Spooler: i.env.Spooler,
			SpoolBytes: i.spoolBytes(), DropOldest: i.cfg.DropOldest,
		},
		Config: i.controllerConfig(), Selection: i.selection(), HoldsEarlierRun: i.holdsEarlierRun,
		Log: i.log.With("resource", i.cfg.Type.String()), Registerer: i.metrics,
	}
	i.stages, err = NewStages(cfg)
	return err
}

func (i *Informer) controllerConfig() controller.Config {
	cfg := controller.Config{
		Selector: i.cfg.selector(i.cfg.Filter), OnDelete: i.env.OnDelete,
		Namespaces: i.cfg.NamespaceSelector != "",
		Selective:  i.cfg.selective(), Leavable: i.cfg.leavable(),
		Enterable:  i.cfg.selectsHere() && i.cfg.Snapshot != SnapshotNever,
		Resnapshot: i.cfg.Snapshot == SnapshotAlways, Unclean: i.start.Unclean,
		EarlierRuns: i.findEarlierRuns, Diverged: i.diverged,
	}
	if clock := i.env.Client.Clock; clock != nil {
		if i.From() != "" {
			at, isEarlier := clock.Watched()
			if cfg.Resumed = (event.Unwatched{From: i.From(), Since: at}); isEarlier {
				cfg.Restarted = i.state.at
			}
		}
		cfg.Opened = func() time.Time { return i.reflector.Status().FirstOpened }
		cfg.Reopened = func() time.Time { return i.reflector.Status().Reopened }
		name := i.cfg.Type.String()
		cfg.Since = func(v resource.Version) (time.Time, bool) { return clock.Since(name, v) }
	}
	if i.cfg.Owners {
		cfg.Owners = i.env.Owners
	}
	cfg.Changed = i.cfg.Changed
	if i.env.Replicas != nil {
		cfg.Succeeds = func() (resource.Version, bool) { return i.env.Replicas.Succeeds(i) }
	}
	return cfg
}

func (i *Informer) listener(b *Binding) (l ListenerConfig, err error) {
	sink, ok := i.env.Sink(b.Sink)
	if !ok {
		return l, fmt.Errorf("there is no sink %q", b.Sink)
	}
	cfg := i.cfg.makerConfig(i.env.Cluster)
	cfg.Payload, cfg.Types, cfg.CustomAttributes = b.Payload, b.Types, i.cfg.CustomAttributes
	cfg.Selective = i.cfg.LabelSelector != "" || i.cfg.FieldSelector != ""
	cfg.Exact = i.cfg.selectsHere() && !i.cfg.leavable()
	cfg.Omits = i.cfg.omits(b)
	if i.env.Trace != nil {
		cfg.Trace = i.env.Trace(i.cfg.Informer, b.Sink)
	}
	i.Replica.sinkKeys = append(i.Replica.sinkKeys, sink.Key)
	maker, err := event.NewMaker(cfg)
	return ListenerConfig{
		Config: processor.Config{
			Name: b.Sink, Publisher: sink.Publisher, Follows: i.env.Replicas != nil, Maker: maker,
			Latest: b.Latest, Run: i.start.Run,
		},
		Selector: i.cfg.selector(b.Filter), Resync: b.Resync, Progress: b.Progress,
	}, err
}

// spoolBytes returns the bound of the log on disk. Without a state directory that would be memory
// too, which is bounded already.
func (i *Informer) spoolBytes() int64 {
	if i.env.DB.Database().Dir() == "" {
		return -1
	}
	return i.cfg.Spool
}

func (i *Informer) addReflector() (err error) {
	cfg := reflector.Config{
		Client: i.env.Client, Store: i.fifo, Limits: i.cfg.Reflector, Log: i.log,
		Registerer: i.metrics,
	}
	cfg.Identify = i.env.Identify
	cfg.Type, cfg.Namespace = i.cfg.Type, i.cfg.Namespace
	if err := i.addSelectors(&cfg); err != nil {
		return err
	}
	cfg.Parse = i.cfg.Parse
	cfg.Parse.Type = i.cfg.Type
	cfg.Watchdog = i.watchdog()
	cfg.Snapshot = i.state.recovery != controller.Now
	cfg.From, cfg.Reached = i.From(), i.state.saved
	if err := i.addNamespaces(&cfg); err != nil {
		return err
	}
	if !i.cfg.Shard.All() {
		cfg.Selects = func(obj *resource.Object) bool {
			return i.cfg.Shard.Has(i.cfg.Type, obj.Namespace, obj.Name)
		}
	}
	if cfg.Diverged = i.diverged; i.state.recovery == controller.Rewound {
		i.diverged.Set()
	}
	i.reflector, err = reflector.New(cfg)
	return err
}

// addSelectors makes the API server evaluate the selectors, or the reflector the one of labels.
func (i *Informer) addSelectors(cfg *reflector.Config) error {
	cfg.LabelSelector, cfg.FieldSelector = i.cfg.LabelSelector, i.cfg.FieldSelector
	if !i.cfg.selectsHere() {
		return nil
	}
	selector, err := labels.Parse(i.cfg.LabelSelector)
	if err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	cfg.LabelSelector = ""
	cfg.Matches = func(obj *resource.Object) bool { return selector.Matches(obj.Labels()) }
	return nil
}

// addNamespaces makes the reflector select namespaces, where the configuration does.
func (i *Informer) addNamespaces(cfg *reflector.Config) error {
	if i.cfg.NamespaceSelector == "" {
		return nil
	}
	selected, err := i.env.Namespaces.Select(i.cfg.NamespaceSelector)
	if err != nil {
		return err
	}
	i.selected = selected
	saved, err := i.indexer.Meta().Namespaces()
	if err != nil {
		return err
	}
	cfg.Namespaces = selected
	cfg.Selected, cfg.AsOf = map[string]resource.NamespaceState{}, map[string]resource.Version{}
	for name, n := range saved {
		cfg.Selected[name] = n.State
		if n.AsOf != "" {
			cfg.AsOf[name] = n.AsOf
		}
	}
	return nil
}

// From returns the version after which the informer resumed, "" for none.
func (i *Informer) From() resource.Version {
	if i.lists() || i.state.recovery == controller.Interrupted {
		return ""
	}
	return i.state.saved
}
