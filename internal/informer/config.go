package informer

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/informer/controller"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Snapshot is when the existing objects are published.
type Snapshot string

// The snapshot modes.
const (
	SnapshotInitial Snapshot = "initial" // at the first start; the default
	SnapshotNever   Snapshot = "never"   // changes only
	SnapshotAlways  Snapshot = "always"  // at every start: what is known already as Synced
)

// Config is a unit: one resource of an informer section, in one namespace or all. Zero values mean
// the documented default.
type Config struct {
	// Informer is the section's name in the configuration; it is part of every message id.
	Informer string
	Type     resource.Type
	// Named: the configuration names the resource, rather than everything there is. Its absence is
	// a fault.
	Named         bool
	Namespace     string // "" for all
	LabelSelector string
	FieldSelector string
	// SelectHere makes the bridge evaluate LabelSelector, not the API server. Then it knows of each
	// object when it enters the selection and when it leaves.
	SelectHere bool
	// NamespaceSelector is a label selector of namespaces: only objects of the selected ones are
	// published, as namespaces come, go and change. "" for all. Not together with Namespace.
	NamespaceSelector string
	// Shard is the share of the objects that is this process's.
	Shard resource.Shard
	// CustomAttributes make attributes from fields of the objects.
	CustomAttributes []event.CustomAttribute
	// Owners adds the chain to the top controller, as far as its objects are known.
	Owners bool
	// Indexes are those beside the ones that every informer has.
	Indexes []store.Index
	// Changed adds which parts of its object an update has changed.
	Changed bool
	// Filter selects the changes that are published at all.
	Filter   filter.Rules
	Snapshot Snapshot
	Queue
	Parse resource.ParseOptions // Type is filled in
	// Redaction identifies what Parse takes out. When it differs from last time, the state on disk
	// is redacted as Parse says now.
	Redaction string
	Sinks     []Binding
	// Reflector has its limits.
	Reflector reflector.Limits
}

// Queue bounds the changes of an informer that are pending for its sinks.
type Queue struct {
	// Memory bounds the change log, in bytes; default 16 MiB. The FIFO before it gets a quarter of
	// it.
	Memory int
	// Spool bounds the change log on disk, in bytes; default 10 GiB. Without a state directory
	// nothing lies on disk.
	Spool int64
	// DropOldest drops the oldest changes on disk when Spool is reached, and reports that; else
	// reading stops.
	DropOldest bool
	// Lag is the age of the oldest unacknowledged change at which the informer is not ready; 0 for
	// no limit.
	Lag time.Duration
}

// Binding sends an informer's changes to a sink.
type Binding struct {
	Sink    string
	Payload event.Payload
	Types   event.Types
	// Filter selects the changes.
	Filter filter.Rules
	// Latest sends only the newest of an object's pending changes. Not with DropOldest.
	Latest bool
	// Resync is how often this sink is sent every object again; 0 for never.
	Resync time.Duration
	// Progress is how often at most this sink is sent up to which version its stream is complete; 0
	// for never.
	Progress time.Duration
}

// Name returns the unit's name. It is unique in a bridge; the state is kept under it.
func (c *Config) Name() string {
	name := c.Informer + "/" + c.Type.String()
	if c.Namespace != "" {
		name += "/" + c.Namespace
	}
	return name
}

// makerConfig returns the part of a maker's configuration that makes sources and ids.
func (c *Config) makerConfig(cluster string) event.MakerConfig {
	return event.MakerConfig{
		Cluster: cluster, Informer: c.Informer, Type: c.Type, Namespace: c.Namespace, Shard: c.Shard,
	}
}

// Scope returns what the unit selects. When it changes, the saved position does not cover it any
// more.
func (c *Config) Scope() string {
	scope := "labels=" + c.LabelSelector + " fields=" + c.FieldSelector
	if c.NamespaceSelector != "" {
		// Which ones, the state has by name: with another selector, namespaces enter and leave.
		scope += " namespaces=selected"
	}
	if !c.Shard.All() {
		scope += shardScope + c.Shard.String()
	}
	return scope
}

// ReplicaScope returns the scope that replicas compare: progress of one selector of namespaces
// says nothing about another selector.
func (c *Config) ReplicaScope() string {
	if c.NamespaceSelector == "" {
		return c.Scope()
	}
	return c.Scope() + " namespaces=" + c.NamespaceSelector
}

// shardScope begins the shard in a scope, which is the last part.
const shardScope = " shard="

// narrowing lets a smaller shard resume from the state of a larger one. Objects that it no longer
// has are another shard's.
func (c *Config) narrowing() store.Narrowing {
	all := *c
	all.Shard = resource.Shard{}
	return store.Narrowing{
		Same: func(scope string) bool {
			rest, _, _ := strings.Cut(scope, shardScope)
			return rest == all.Scope()
		},
		From: func(scope string) bool {
			rest, text, sharded := strings.Cut(scope, shardScope)
			before, err := resource.ParseShard(text)
			if sharded && err != nil {
				return false
			}
			return rest == all.Scope() && c.Shard.Within(before)
		},
		Keep: func(key resource.Key) bool {
			namespace, name := key.Split()
			return c.Shard.Has(c.Type, namespace, name)
		},
	}
}

// selective reports whether anything is selected, beside a namespace.
func (c *Config) selective() bool {
	return c.NamespaceSelector != "" || c.LabelSelector != "" || c.FieldSelector != ""
}

// selectsHere reports whether labels are selected here, by what each version of an object has.
func (c *Config) selectsHere() bool { return c.SelectHere && c.LabelSelector != "" }

// leavable reports whether an object may leave what the API server selects while it lives: names do
// not change.
func (c *Config) leavable() bool {
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

// needsExactBodies reports whether something needs objects exactly as they were at a version,
// rather than to show the last state of a deleted one: as the old object of an update, for a
// selector that reads them, to be sent again, to make attributes, or in an index.
func (c *Config) needsExactBodies() bool {
	exact := c.selectsHere() || c.Owners || c.Changed || len(c.CustomAttributes) > 0 ||
		c.selector(c.Filter) != nil
	for _, b := range c.Sinks {
		exact = exact || b.Resync > 0 || b.Payload.NeedsOld() || c.selector(b.Filter) != nil
	}
	return exact
}

// indexes returns all indexes of the unit.
func (c *Config) indexes() []store.Index {
	list := []store.Index{store.ByOwner()}
	if c.Type.IsPods() {
		list = append(list, store.ByNode())
	}
	return append(list, c.Indexes...)
}

// selector returns the selector of rules, nil when they keep nothing back.
func (c *Config) selector(rules filter.Rules) controller.Selector {
	if f := filter.New(rules, c.Type); f != nil {
		return f
	}
	return nil
}

// omits returns the configuration's keys by which a sink is not sent every version of an object.
func (c *Config) omits(b *Binding) (keys []string) {
	if b.Latest {
		keys = append(keys, "latest")
	}
	keys = append(keys, c.Filter.Keys(c.Type)...)
	keys = append(keys, b.Filter.Keys(c.Type)...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// sendsTo reports whether a sink gets the informer's changes.
func (c *Config) sendsTo(sink string) bool {
	return slices.ContainsFunc(c.Sinks, func(b Binding) bool { return b.Sink == sink })
}
