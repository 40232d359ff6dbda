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

// Env is what all pipelines of a bridge share.
type Env struct {
	Cluster   string
	Client    *reflector.Client
	DB        *store.DB
	Committer *checkpoint.Committer
	Spooler   *changelog.Spooler
	// Budget is of what all pipelines hold in memory; nil for what each is configured to hold.
	Budget     *ratelimit.Budget
	Namespaces *namespaces.Watcher
	// Sink returns a sink that runs; ok is false when there is none of that name.
	Sink func(name string) (s Sink, ok bool)
	// Replicas is nil where there are no other replicas.
	Replicas Replicas
	// Owners returns an object's controller, that one's, and so on. OnDelete is called before an
	// object is forgotten.
	Owners   func(obj *resource.Object) []resource.Owner
	OnDelete func(obj *resource.Object)
	// Trace returns what makes the traceparent of an informer's events for a sink; may be nil.
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
	// Succeeds reports whether others have published this pipeline's changes before, and up to
	// which version at least.
	Succeeds(p *Informer) (from resource.Version, led bool)
}

// Start says how a pipeline begins.
type Start struct {
	// Relist: the position on disk is not enough, so it lists.
	Relist bool
	// Unclean: the run of this pipeline before may have sent what is not known on disk.
	Unclean bool
	// Run is that of processor.Config.
	Run string
}

// Informer is one pipeline from the API server to the publishers. Its methods may be called
// concurrently, but for those of its life.
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
	opened    opened
	stages    *Stages
	reflector *reflector.Reflector
	// diverged is set by the controller when a list shows that the server's history is another. The
	// reflector watches it.
	diverged *ratelimit.Signal
	id       uint64 // another for each pipeline, also of the same name
	start    Start
	selected *namespaces.Selection // nil without a namespaceSelector
	metrics  *metric.Scope
	accounts accounts
	refresh  bodyRefresh
	life     life
}

// opened is what was found when the state was opened.
type opened struct {
	at       time.Time
	saved    resource.Version     // the watermark on disk, "" for none
	recovery controller.StartCase // what to read with; the first list decides on its gap
}

// ids counts pipelines.
var ids atomic.Uint64

// New opens the state and connects the stages. It starts nothing.
func New(cfg Config, env Env, start Start) (*Informer, error) {
	p := &Informer{
		cfg: cfg, env: env, name: cfg.Name(), id: ids.Add(1), start: start, life: newLife(),
		diverged: &ratelimit.Signal{},
	}
	p.Replica, p.Snapshots, p.Objects = &Replica{p: p}, &Snapshots{p: p}, &Objects{p: p}
	p.log = env.Log.With("informer", cfg.Informer)
	if cfg.Namespace != "" {
		p.log = p.log.With("namespace", cfg.Namespace)
	}
	p.metrics = metric.NewScope(env.Registerer, prometheus.Labels{
		"informer": cfg.Informer, "resource": cfg.Type.String(), "namespace": cfg.Namespace,
	})
	p.accounts = accounts{fifo: env.Budget.Account(), log: env.Budget.Account()}
	for _, step := range []func() error{p.openState, p.addFIFO, p.addInformer, p.addReflector} {
		if err := step(); err != nil {
			p.accounts.close()
			return nil, fmt.Errorf("informer %s: %w", p.name, err)
		}
	}
	p.registerMetrics()
	p.metrics.Begin()
	env.Committer.Track(p.stages.Log())
	return p, nil
}

// Name is the Config's.
func (p *Informer) Name() string { return p.name }

// Config must not be changed.
func (p *Informer) Config() *Config { return &p.cfg }

// Log has the pipeline's attributes.
func (p *Informer) Log() *slog.Logger { return p.log }

func (p *Informer) openState() (err error) {
	p.indexer, err = p.env.DB.Indexer(store.IndexerConfig{
		Name: p.name, Scope: p.cfg.Scope(), Narrowing: p.cfg.narrowing(), Type: p.cfg.Type,
		ExactBodies: p.cfg.needsExactBodies(),
	})
	if err != nil {
		return err
	}
	if err := p.redactState(); err != nil {
		return err
	}
	position, errPosition := p.indexer.Meta().Position()
	pending, errPending := p.indexer.Meta().ListPending()
	diverged, err := p.indexer.Meta().Diverged()
	p.opened.saved, p.opened.at = position.Version, time.Now()
	p.opened.recovery = controller.Recover(&controller.StartState{
		Diverged: diverged, Pending: pending, Watermark: p.opened.saved != "", Lists: p.lists(),
		NoSnapshot: p.cfg.Snapshot == SnapshotNever,
	})
	return errors.Join(errPosition, errPending, err)
}

// lists reports whether it lists everything, whatever is known.
func (p *Informer) lists() bool { return p.cfg.Snapshot == SnapshotAlways || p.start.Relist }

// redactState takes out of the state on disk what is to be taken out now and was not before. It
// must not come back as the old object of a change, or as the last state of a deleted object.
func (p *Informer) redactState() error {
	opts := p.cfg.Parse
	opts.Type = p.cfg.Type
	tag := ""
	if opts.Redacts() {
		tag = p.cfg.Redaction
	}
	before, err := p.indexer.Meta().Redaction()
	if err != nil || before == tag {
		return err
	}
	if tag != "" {
		if err := changelog.Redact(p.indexer, opts.Again()); err != nil {
			return fmt.Errorf("what the configuration takes out now is still in the state directory, "+
				"and can't be taken out there: %w", err)
		}
	}
	return p.indexer.Meta().SetRedaction(tag)
}

// addFIFO bounds it by a quarter of the memory. Deltas pending in the FIFO could as well be in the
// log: the FIFO only keeps reading and deciding from waiting for each other.
func (p *Informer) addFIFO() (err error) {
	p.fifo, err = deltafifo.New(deltafifo.Config{
		MaxBytes: max(cmp.Or(p.cfg.Memory, 16<<20)/4, 1), Known: p.indexer.Listing(),
		Resumed: p.From() != "", Account: p.accounts.fifo,
		Registerer: p.metrics,
	})
	return err
}

func (p *Informer) addInformer() (err error) {
	var listeners []ListenerConfig
	for i := range p.cfg.Sinks {
		listener, err := p.listener(&p.cfg.Sinks[i])
		if err != nil {
			return err
		}
		listeners = append(listeners, listener)
	}
	cfg := StagesConfig{
		Name: p.name, Type: p.cfg.Type, Shard: p.cfg.Shard,
		FIFO: p.fifo, Indexer: p.indexer, Committer: p.env.Committer, Listeners: listeners,
		Spooler: p.env.Spooler, Config: p.controllerConfig(),
		LogBytes: p.cfg.Memory, LogAccount: p.accounts.log,
		SpoolBytes: p.spoolBytes(), DropOldest: p.cfg.DropOldest,
		Selection: p.selection(), Holds: p.holds,
		Log: p.log.With("resource", p.cfg.Type.String()), Registerer: p.metrics,
	}
	p.stages, err = NewStages(cfg)
	return err
}

func (p *Informer) controllerConfig() controller.Config {
	cfg := controller.Config{
		Selector: p.cfg.selector(p.cfg.Filter), OnDelete: p.env.OnDelete,
		Namespaces: p.cfg.NamespaceSelector != "",
		Selective:  p.cfg.selective(), Leavable: p.cfg.leavable(),
		Enterable:  p.cfg.selectsHere() && p.cfg.Snapshot != SnapshotNever,
		Resnapshot: p.cfg.Snapshot == SnapshotAlways, Unclean: p.start.Unclean,
		Forgotten: p.forgotten, Diverged: p.diverged,
	}
	if p.cfg.Owners {
		cfg.Owners = p.env.Owners
	}
	if p.env.Replicas != nil {
		cfg.Succeeds = func() (resource.Version, bool) { return p.env.Replicas.Succeeds(p) }
	}
	return cfg
}

func (p *Informer) listener(b *Binding) (l ListenerConfig, err error) {
	sink, ok := p.env.Sink(b.Sink)
	if !ok {
		return l, fmt.Errorf("there is no sink %q", b.Sink)
	}
	cfg := p.cfg.makerConfig(p.env.Cluster)
	cfg.Payload, cfg.Types, cfg.CustomAttributes = b.Payload, b.Types, p.cfg.CustomAttributes
	cfg.Selective = p.cfg.LabelSelector != "" || p.cfg.FieldSelector != ""
	cfg.Exact = p.cfg.selectsHere() && !p.cfg.leavable()
	cfg.Omits = p.cfg.omits(b)
	if p.env.Trace != nil {
		cfg.Trace = p.env.Trace(p.cfg.Informer, b.Sink)
	}
	p.Replica.sinkKeys = append(p.Replica.sinkKeys, sink.Key)
	maker, err := event.NewMaker(cfg)
	return ListenerConfig{
		Config: processor.Config{
			Name: b.Sink, Publisher: sink.Publisher, Follows: p.env.Replicas != nil, Maker: maker,
			Latest: b.Latest, Run: p.start.Run,
		},
		Selector: p.cfg.selector(b.Filter), Resync: b.Resync, Progress: b.Progress,
	}, err
}

// spoolBytes is the bound of the log on disk. Without a state directory that would be memory too,
// which is bounded already.
func (p *Informer) spoolBytes() int64 {
	if p.env.DB.Database().Dir() == "" {
		return -1
	}
	return p.cfg.Spool
}

func (p *Informer) addReflector() (err error) {
	cfg := reflector.Config{
		Client: p.env.Client, Store: p.fifo, Limits: p.cfg.Reflector, Log: p.log,
		Registerer: p.metrics,
	}
	cfg.Identify = p.env.Identify
	cfg.Type, cfg.Namespace = p.cfg.Type, p.cfg.Namespace
	if err := p.addSelectors(&cfg); err != nil {
		return err
	}
	cfg.Parse = p.cfg.Parse
	cfg.Parse.Type = p.cfg.Type
	cfg.Watchdog = p.watchdog()
	cfg.Snapshot = p.opened.recovery != controller.Now
	cfg.From, cfg.Reached = p.From(), p.opened.saved
	if err := p.addNamespaces(&cfg); err != nil {
		return err
	}
	if !p.cfg.Shard.All() {
		cfg.Selects = func(obj *resource.Object) bool {
			return p.cfg.Shard.Has(p.cfg.Type, obj.Namespace, obj.Name)
		}
	}
	if cfg.Diverged = p.diverged; p.opened.recovery == controller.Rewound {
		p.diverged.Set()
	}
	p.reflector, err = reflector.New(cfg)
	return err
}

// addSelectors has the API server evaluate the selectors, or the reflector the one of labels.
func (p *Informer) addSelectors(cfg *reflector.Config) error {
	cfg.LabelSelector, cfg.FieldSelector = p.cfg.LabelSelector, p.cfg.FieldSelector
	if !p.cfg.selectsHere() {
		return nil
	}
	selector, err := labels.Parse(p.cfg.LabelSelector)
	if err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	cfg.LabelSelector = ""
	cfg.Matches = func(obj *resource.Object) bool { return selector.Matches(obj.Labels()) }
	return nil
}

// addNamespaces has the reflector select namespaces, where the pipeline does.
func (p *Informer) addNamespaces(cfg *reflector.Config) error {
	if p.cfg.NamespaceSelector == "" {
		return nil
	}
	selected, err := p.env.Namespaces.Select(p.cfg.NamespaceSelector)
	if err != nil {
		return err
	}
	p.selected = selected
	saved, err := p.indexer.Meta().Namespaces()
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

// From is the version after which it resumed, "" for none.
func (p *Informer) From() resource.Version {
	if p.lists() || p.opened.recovery == controller.Interrupted {
		return ""
	}
	return p.opened.saved
}
