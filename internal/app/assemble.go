package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/publisher/tracing"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// assembler turns a configuration into a bridge. It is the one place that knows both.
type assembler struct {
	config   *config.Config
	version  string // of the file that it comes from; "" for none
	log      *slog.Logger
	registry prometheus.Registerer // nil for none
	// sink makes the sinks for a cluster. They register their metrics with reg.
	sink func(
		cluster string, c *config.Sink, reg prometheus.Registerer,
	) (sinks.Sink, sinks.Service, error)
	// replicas are the others that stand by; nil for none.
	replicas *replicas
	// feeds is for the sinks; what is assembled later has the same.
	feeds *feeds
	// waiting gets the reason each time that the API server can't be asked yet; nil does not wait
	// for it.
	waiting func(error)
	// fatal ends the process when the state can't be written any more.
	fatal func(error)
	// onSynced is called once, when all resources of the start are in sync; may be nil.
	onSynced func()
	// queueBytes is as in bridge.Config.
	queueBytes int64
	// tracer, nil for none.
	tracer *tracing.Tracer
	// undelivered keeps what no broker takes; nil for nothing.
	undelivered *refused.Folder
	// letters signs dead letters; nil leaves them unsigned.
	letters *letterSigner
	// onSettle is called with what a sink has settled; may be nil.
	onSettle func(sink string, settled []*publisher.Item)
}

// assembly is a bridge with what belongs to it.
type assembly struct {
	bridge *bridge.Bridge
	db     *store.DB
	rights *rights.ListCheck
	// A change of the configuration continues from these.
	cluster string
	planner *planner
}

// Close closes the state, after Run has returned.
func (p *assembly) Close() error { return p.db.Close() }

// reasons returns why the bridge is not ready, as the admin server shows it.
func (p *assembly) reasons() []admin.Reason {
	var list []admin.Reason
	for _, r := range p.bridge.Ready() {
		list = append(list, admin.Reason{What: r.Component, Message: r.Message})
	}
	return append(list, p.rights.Reasons()...)
}

// assemble asks the API server what the names in the configuration mean, opens the state, and puts
// the parts together. Its error joins all that it found wrong.
func (a *assembler) assemble(ctx context.Context) (*assembly, error) {
	k := &a.config.Kubernetes
	rc, contextCluster, err := kube.RESTConfig(k.Kubeconfig, k.Context, k.QPS, k.Burst)
	if err != nil {
		return nil, err
	}
	client, err := reflector.NewClient(rc)
	if err != nil {
		return nil, err
	}
	if _, err := keyFromFile(a.config); err != nil { // before an API server is waited for
		return nil, err
	}
	cluster := cmp.Or(a.config.Cluster, contextCluster)
	var parts sinkParts
	if cluster != "" { // what is wrong with them is reported before an API server is waited for
		if parts, err = a.sinks(cluster); err != nil {
			return nil, err
		}
	}
	found, err := a.await(ctx, rc)
	if err != nil {
		return nil, err
	}
	if cluster == "" {
		if cluster = found.clusterID; cluster == "" {
			return nil, errors.New("the cluster has no name: set cluster (--cluster); it is in " +
				"the source of every event")
		}
		if parts, err = a.sinks(cluster); err != nil {
			return nil, err
		}
	}
	db, err := a.openState(found.clusterID)
	if err != nil {
		return nil, err
	}
	rights, err := a.listCheck()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c := bridge.Config{
		Cluster: cluster, Client: client, Identify: found.identify, DB: db, Sinks: parts.sinks,
		Services: append(parts.services, rights),
		Watchdog: k.WatchIdleTimeout, CommitInterval: a.config.State.CommitInterval,
		Drain: a.config.ShutdownTimeout,
		Log:   a.log, Registerer: a.registry,
		Standby:  a.replicas.bridge(a.version),
		OnSettle: a.onSettle,
		OnSynced: a.onSynced, QueueBytes: a.queueBytes,
	}
	if a.tracer != nil {
		c.Trace, c.Services = a.tracer.Parent, append(c.Services, a.tracer)
	}
	p, err := a.bridge(c, found, rights)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return p, nil
}

// listCheck asks for the bridge's rights, with a rate of its own: what is watched does not wait for
// it.
func (a *assembler) listCheck() (*rights.ListCheck, error) {
	const perSecond = 10
	k := &a.config.Kubernetes
	rc, _, err := kube.RESTConfig(k.Kubeconfig, k.Context, perSecond, perSecond)
	if err != nil {
		return nil, err
	}
	resolver, err := kube.NewResolver(rc)
	return rights.NewListCheck(resolver, a.log), err
}

// StateDir returns the directory of the state database: one of its own inside state.dir, beside
// which other things may lie, such as an embedded broker's streams or a volume's lost+found.
func StateDir(c *config.Config) string { return filepath.Join(c.State.Dir, "db") }

func (a *assembler) openState(clusterID string) (*store.DB, error) {
	dir := StateDir(a.config)
	if a.config.State.Mode == "memory" {
		dir = ""
	}
	db, err := store.Open(statedb.Options{
		Dir: dir, Log: a.log, Registerer: a.registry, Fatal: a.fatal,
	})
	if err != nil {
		return nil, err
	}
	if err := db.Database().Identity().BindCluster(clusterID); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.SetBodiesPerSecond(a.bodiesPerSecond())
	return db, nil
}

// bodiesPerSecond returns the configured bound. There is none where chains of owners are asked for:
// they are made of the bodies of other informers' objects.
func (a *assembler) bodiesPerSecond() int {
	if slices.ContainsFunc(a.config.Informers,
		func(inf config.Informer) bool { return inf.Owners }) {
		return 0
	}
	return a.config.State.BodiesPerSecond
}

// sinkParts are the sinks, and the brokers that have to run for them.
type sinkParts struct {
	sinks    []bridge.SinkConfig
	services []bridge.Service
}

func (a *assembler) sinks(cluster string) (parts sinkParts, err error) {
	var errs []error
	for i := range a.config.Sinks {
		sink, broker, err := a.makeSink(cluster, &a.config.Sinks[i])
		if err != nil {
			errs = append(errs, sinkProblems(a.config, i, err)...)
			continue
		}
		if broker != nil {
			parts.services = append(parts.services, broker)
		}
		parts.sinks = append(parts.sinks, sink)
	}
	return parts, errors.Join(errs...)
}

// makeSink makes one sink, and the broker that has to run for it, nil for none. Its metrics are
// registered when it is used.
func (a *assembler) makeSink(
	cluster string, c *config.Sink,
) (sc bridge.SinkConfig, broker sinks.Service, err error) {
	scope := metric.NewScope(a.registry, prometheus.Labels{"sink": c.Name})
	sink, broker, err := a.sink(cluster, c, scope)
	if err != nil {
		return sc, nil, err
	}
	return bridge.SinkConfig{
		Name: c.Name, Sink: sink, Scope: scope, Target: sinkTarget(c),
		KeepsNewest: c.KeepsNewest(),
		Publisher: publisher.Config{
			MaxBytes: int(c.MaxInFlightBytes),
			Retry:    publisher.Retry(c.Retry),
			RateLimit: ratelimit.BucketConfig{
				PerSecond: c.RateLimit.PerSecond, Burst: c.RateLimit.Burst,
				BytesPerSecond: float64(c.RateLimit.BytesPerSecond),
				BurstBytes:     int(c.RateLimit.BurstBytes),
			},
			Oversize: oversize(c.Oversize), MaxSize: int(c.MaxSize),
			Forget: !c.ReadBack,
			Keep:   a.keep(c.Name), DeadLetterWait: c.DeadLetterWait,
			SignLetter: a.letters.of(c.Name),
		},
	}, broker, nil
}

// keep puts what a sink can't get rid of into the state directory; nil where there is none.
func (a *assembler) keep(
	sink string,
) func(e *event.Event, refusal, deadLetter error, attempts int) error {
	if a.undelivered == nil {
		return nil
	}
	return func(e *event.Event, refusal, deadLetter error, attempts int) error {
		err := a.undelivered.Keep(e, refused.Refusal{
			Sink: sink, Reason: refusal.Error(), DeadLetter: deadLetter.Error(), Attempts: attempts,
			Kept: time.Now().UTC(),
		})
		if errors.Is(err, refused.ErrFull) {
			return fmt.Errorf("%w: %w", publisher.ErrNoRoom, err)
		}
		return err
	}
}

// oversize is never nil, which would be the default and not "none".
func oversize(ways []string) []publisher.Oversize {
	list := make([]publisher.Oversize, 0, len(ways))
	for _, way := range ways {
		list = append(list, publisher.Oversize(way))
	}
	return list
}

// bridge adds the units, one for each resource of an informer in each of its namespaces.
func (a *assembler) bridge(
	c bridge.Config, d discoveryResult, check *rights.ListCheck,
) (*assembly, error) {
	redactor, err := redactorOf(a.config, c.DB)
	if err != nil {
		return nil, err
	}
	if err := forgetOwnKey(a.config, c.DB); err != nil {
		return nil, err
	}
	shard, err := shardOf(a.config)
	if err != nil {
		return nil, err
	}
	a.letters.setKey(redactor)
	p, err := newPlanner(a.config, d, redactor, shard, nil)
	if err != nil {
		return nil, err
	}
	first := p.plan(d.catalog, d.types)
	logWarnings(a.log, kindsServed(a.config, d.types))
	c.Units, c.Unknown, check.Units = first.Units, first.Unknown, first.Units
	if interval := a.config.Kubernetes.DiscoveryInterval; interval > 0 {
		c.Planner, c.PlanInterval = p.ask, interval
	}
	b, err := bridge.New(c)
	return &assembly{bridge: b, db: c.DB, rights: check, cluster: c.Cluster, planner: p}, err
}

// unit returns what all units of an informer have in common.
func unit(inf *config.Informer, redactor *resource.Redactor) (informer.Config, error) {
	u := informer.Config{
		Informer:      inf.Name,
		LabelSelector: inf.LabelSelector, FieldSelector: inf.FieldSelector,
		NamespaceSelector: inf.NamespaceSelector,
		SelectHere:        inf.SelectAt == "bridge",
		Snapshot:          informer.Snapshot(inf.Snapshot),
		Queue: informer.Queue{
			Memory: int(inf.Queue.Memory), Spool: int64(inf.Queue.Spool),
			DropOldest: inf.Queue.WhenFull == "drop-oldest", Lag: inf.MaxLag,
		},
		Parse: resource.ParseOptions{KeepManagedFields: inf.KeepManagedFields},
	}
	if inf.Secrets != "send" {
		u.Parse.Redactor = redactor
	}
	var err error
	if u.Parse.Rules, err = redaction(inf, redactor); err != nil {
		return u, err
	}
	u.Redaction = fmt.Sprintf("format=%d secrets=%s redact=%q drop=%q env=%t",
		resource.RedactionFormat, inf.Secrets, inf.Redact, inf.Drop, inf.RedactEnv)
	if u.Parse.Redactor != nil || u.Parse.Rules != nil {
		u.Redaction += " key=" + redactor.KeyID()
	}
	if u.CustomAttributes, err = customAttributes(inf.Attributes); err != nil {
		return u, err
	}
	u.Owners, u.Changed = inf.Owners, inf.Changed
	if u.Indexes, err = indexes(inf.Indexes); err != nil {
		return u, err
	}
	if u.Filter, err = informerRules(inf); err != nil {
		return u, err
	}
	for _, b := range inf.Sinks {
		rules, err := rules(b.Operations, b.Filter)
		if err != nil {
			return u, fmt.Errorf("sink %s: %w", b.Name, err)
		}
		u.Sinks = append(u.Sinks, informer.Binding{
			Sink: b.Name, Payload: event.Payload(b.Payload), Types: event.Types(b.Types),
			Filter: rules,
			Latest: b.Delivery == "latest", Resync: b.Resync, Progress: b.Progress,
		})
	}
	return u, nil
}

// indexes returns the indexes that a configuration adds.
func indexes(list []config.Index) (added []store.Index, err error) {
	for _, c := range list {
		if c.Label != "" {
			added = append(added, store.ByLabel(c.Label))
			continue
		}
		x, err := filter.CompileIndex(c.CEL)
		if err != nil {
			return nil, fmt.Errorf("index %s: %w", c.Name, err)
		}
		added = append(added, store.Index{Name: c.Name, Definition: c.CEL, Values: x.Values})
	}
	return added, nil
}

// observe shows what is settled in the live tail and, where the configuration asks for it, sends it
// as spans to a collector of traces.
func (a *assembler) observe(hub *tail.Hub, version string) (err error) {
	a.onSettle = hub.Settled
	c := a.config.Tracing
	if c.Endpoint == "" {
		return nil
	}
	a.tracer, err = tracing.New(tracing.Config{
		Endpoint: string(c.Endpoint), Sample: c.SampleRatio, Version: version, Log: a.log,
		Registerer: a.registry,
	})
	a.onSettle = func(sink string, settled []*publisher.Item) {
		hub.Settled(sink, settled)
		a.tracer.Settled(sink, settled)
	}
	return err
}

// replicas is what several bridges share that stand by for each other.
type replicas struct {
	lease *standby.Lease
	board *standby.ProgressLease
	name  string // of the lease, with its namespace, as a token
}

// newReplicas is nil where the configuration knows no others. It asks no server.
func (a *assembler) newReplicas() (*replicas, error) {
	s := &a.config.Standby
	if !s.Enabled {
		return nil, nil
	}
	k := &a.config.Kubernetes
	// no event of an informer may hold the lease up
	rc, _, err := kube.RESTConfig(k.Kubeconfig, k.Context, 0, 0)
	if err != nil {
		return nil, err
	}
	rc.Timeout = s.RenewDeadline / 2 // so that a renewal that hangs leaves time for another
	client, err := kube.NewLeases(rc)
	if err != nil {
		return nil, err
	}
	identity, err := identity(s.Identity)
	if err != nil {
		return nil, err
	}
	shard, err := shardOf(a.config)
	if err != nil {
		return nil, err
	}
	namespace, name := rights.LeaseNamespace(a.config), standby.LeaseName(s.Lease.Name, shard)
	c := standby.LeaseConfig{
		Client: client, Namespace: namespace, Name: name, Identity: identity,
		Duration: s.LeaseDuration, RenewDeadline: s.RenewDeadline, RetryPeriod: s.RetryPeriod,
		Log: a.log,
	}
	lease, err := standby.NewLease(c)
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	return &replicas{lease: lease, board: standby.NewProgressLease(c), name: namespace + "_" +
		name}, nil
}

// identity of this process: no other one ever has the same, also not this one's next life.
func identity(configured string) (string, error) {
	if configured == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("the host has no name; set standby.identity: %w", err)
		}
		configured = host
	}
	return configured + "_" + strings.ToLower(rand.Text()[:10]), nil
}

// bridge returns the part for the bridge; nil for none.
func (r *replicas) bridge(version string) *bridge.Standby {
	if r == nil {
		return nil
	}
	return &bridge.Standby{Lease: r.lease, ProgressLease: r.board, Version: version}
}

// Fence is what keeps a replica that led before out of a stream; nil for none.
func (r *replicas) fence() *sinks.Fence {
	if r == nil {
		return nil
	}
	return &sinks.Fence{Name: r.name, Confirm: r.lease.Confirm}
}

// confirm asks whether this replica leads; nil where there are no others.
func (r *replicas) confirm() func(context.Context) error {
	if r == nil {
		return nil
	}
	return r.lease.Confirm
}
