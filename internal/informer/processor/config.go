package processor

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Publisher takes a listener's events, and gives back what is not settled: *publisher.Publisher.
type Publisher interface {
	Add(ctx context.Context, items []*publisher.Item) error
	// TryAdd takes all items, or none. It never waits.
	TryAdd(items []*publisher.Item) bool
	Detach(ctx context.Context, s publisher.Settler) (tried []*publisher.Item)
}

// Config of a Listener. Zero values mean the documented default.
type Config struct {
	// Name of the sink.
	Name      string
	Publisher Publisher
	Maker     *event.Maker
	// Window is how many events of this listener may be with the publisher at once; default 4,096.
	Window int
	// Latest sends of an object's pending changes only the newest, with what the listener was sent
	// before as the old object. Not with changelog.Config's DropOldest.
	Latest bool
	// Ahead is how many pending events a listener with Latest remembers: later changes collapse
	// only when it reads them. Default 16,384.
	Ahead int
	// Follows is set where there are other replicas: the listener sends nothing until Lead.
	Follows bool
	// Run sets the messages of a listener with Latest apart from those of an earlier run that may
	// have sent what is not known here. Default: from those of all others.
	Run string
}

// Env is what the listeners of an informer share.
type Env struct {
	// Log has a cursor for each listener.
	Log     *changelog.Log
	Indexer *store.Indexer
	Type    resource.Type
	// Shard is the share of the objects that this replica knows.
	Shard resource.Shard
	// Selection returns the version of the last change of the selected namespaces that the stream
	// may know of; nil where none are selected.
	Selection func() resource.Version
	// History returns the version since which everything was seen, in an epoch of the server's
	// history; ok is false during a list, and before the first. It is asked with Follows only.
	History func() (from resource.Version, epoch int, ok bool)
	// Holds reports whether a sink that was unavailable before holds events of an earlier run, and
	// the epoch of the latest of them. It waits until the sink is available. nil: entries do not
	// ask.
	Holds func(ctx context.Context, sink string) (holds bool, epoch int, err error)
	// Gaps counts the gaps that only a listener knows of, by reason.
	Gaps   *metric.Counters
	Logger *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// readSize is how many changes a listener takes from the log at once.
const readSize = 256
