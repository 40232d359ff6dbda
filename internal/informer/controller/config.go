package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Config says what the stream is of, and what is known of earlier runs and other replicas. Zero
// values mean: of everything, and nothing.
type Config struct {
	// Selector decides for all listeners which changes are sent; nil for all changes.
	Selector Selector
	// Namespaces is set where the stream is of selected namespaces.
	Namespaces bool
	// Selective is set where the stream is of what a selector selects, so that deletes have their
	// cause where it is known. Leavable: the API server evaluates a selector that an object may
	// leave, and sends that as a delete.
	Selective, Leavable bool
	// Enterable is set where objects are selected here, by what they are at a time, and all that
	// were selected before are known: one that is updated, and was not known, has come in.
	Enterable bool
	// Owners returns an object's controller, that one's, and so on, for the events; nil when they
	// are not asked for.
	Owners func(obj *resource.Object) []resource.Owner
	// OnDelete is called with the last state of an object before it is forgotten; nil for nothing.
	OnDelete func(obj *resource.Object)
	// Resnapshot publishes every object at the first list: what the settled state covers already as
	// Synced.
	Resnapshot bool
	// Unclean: the run before this one may have sent what the settled state does not know. If the
	// server's history went back since, any object may have been sent in a state that was lost, so
	// all are published.
	Unclean bool
	// Succeeds reports whether other replicas have published before this one, and up to which
	// version of the server at least; "" for not known. A first list is a gap then, in which
	// objects may have been deleted. nil: there are none.
	Succeeds func() (from resource.Version, led bool)
	// Diverged is set when a list shows that the API server's history is another than the one
	// that was read before, though its version is not lower: an object is in an older state than
	// before. A list after a rewind has to follow. nil: nothing is done about it.
	Diverged *ratelimit.Signal
	// Forgotten reports which brokers hold events of an earlier run, of which nothing is known here
	// any more. It is asked before the first list, which waits for the answer. nil: there are none.
	Forgotten func(ctx context.Context) EarlierRuns
}

// Selector decides which changes of objects are sent: *filter.Filter.
type Selector interface {
	// Rejects says why a change is kept back, "" when it is sent. An error is counted and logged,
	// and keeps nothing back.
	Rejects(c *event.Change) (reason string, err error)
	// NeedsOld reports whether updates have to come with the old object.
	NeedsOld() bool
}

// EarlierRuns says which brokers hold events of an earlier run.
type EarlierRuns struct {
	// Holding are the sinks, by name, whose brokers do. For them the first list is a gap, in which
	// objects may have been deleted.
	Holding []string
	// Epoch is the latest of these events. All that is sent from then on has a later one: else it
	// would be taken for what the brokers hold.
	Epoch int
	// Unasked are the sinks that are unavailable.
	Unasked []string
}

// Env is what the controller is connected with.
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

// Queue is where the controller pops from: *deltafifo.FIFO.
type Queue interface {
	Pop(ctx context.Context, p deltafifo.Processor) error
}

// Listener is what the controller has to know of one.
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
