package processor

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// inflightEvent is one event with the publisher, and the entry that it is made of.
type inflightEvent struct {
	item   publisher.Item
	event  event.Event
	entry  *changelog.Entry
	first  *changelog.Entry // whose place the entry takes, and that is acked with it; nil for none
	object *pendingObject   // of the entry, with Latest
	copies *eventCopies     // that this is one of; nil for the only one
}

// eventCopies are several inflights of one entry, which is acked when all are settled.
type eventCopies struct {
	left  int
	holds holds // of those that are settled
}

// holds are those of several events as one, by MessageID.
type holds map[string]*publisher.PositionHold

// Release releases all.
func (hs holds) Release() {
	for _, h := range hs {
		h.Release()
	}
}

// settle counts a copy that is settled, and takes over its hold.
func (of *eventCopies) settle(p *inflightEvent) {
	of.left--
	if p.item.Hold != nil {
		of.holds[p.event.MessageID()] = p.item.Hold
	}
}

// acquire waits for room in the window and acquires inflights for the first of the entries, at
// least one.
func (l *Listener) acquire(ctx context.Context, entries []*changelog.Entry) ([]*inflightEvent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hasRoom := func() bool { return l.roomLocked() > 0 }
	if err := ratelimit.WaitCond(ctx, l.cond, hasRoom); err != nil {
		return nil, err
	}
	return l.acquireLocked(entries), nil
}

// tryAcquire acquires an inflight for each of the entries, or none where the window has no room
// for all.
func (l *Listener) tryAcquire(entries []*changelog.Entry) []*inflightEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.roomLocked() < len(entries) {
		return nil
	}
	return l.acquireLocked(entries)
}

// roomLocked is how many more events the window has room for.
func (l *Listener) roomLocked() int { return l.cfg.Window - len(l.inflights) + len(l.free) }

// acquireLocked acquires inflights for the first of the entries, as far as the window has room.
func (l *Listener) acquireLocked(entries []*changelog.Entry) []*inflightEvent {
	for len(l.free) < len(entries) && len(l.inflights) < l.cfg.Window {
		p := &inflightEvent{}
		p.item.Settler, p.item.Seq = l, uint64(len(l.inflights))
		l.inflights = append(l.inflights, p)
		l.free = append(l.free, p)
	}
	n := min(len(entries), len(l.free))
	taken := append([]*inflightEvent{}, l.free[len(l.free)-n:]...)
	l.free = l.free[:len(l.free)-n]
	for i, p := range taken {
		p.entry = entries[i]
	}
	return taken
}

// Settle is called by the publisher with items that are settled.
func (l *Listener) Settle(items []*publisher.Item) {
	l.cursor.Ack(l.acks(items))
	l.release(items)
	if l.queue != nil {
		l.wakeUps.Add(1)
		l.cursor.Wake()
	}
}

// acks is what this listener is done with when items are settled.
func (l *Listener) acks(items []*publisher.Item) []changelog.Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := make([]changelog.Ack, 0, len(items))
	for _, it := range items {
		p := l.inflights[it.Seq]
		ack := changelog.Ack{At: p.entry.Position}
		switch of := p.copies; {
		case of != nil:
			if of.settle(p); of.left > 0 {
				continue
			}
			ack.Hold = of.holds // also where this copy has none, as one that was recalled
		case it.Hold != nil:
			ack.Hold = it.Hold
		}
		if p.first != nil {
			acks = append(acks, changelog.Ack{At: p.first.Position})
		}
		acks = append(acks, ack)
	}
	return acks
}

// release makes the inflights of items free, as if they were new: what one event has left, such as
// the Exists of its message, must not go with the next. When all are free their memory is given up:
// most listeners are idle most of the time, and a first list leaves thousands.
func (l *Listener) release(items []*publisher.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		p := l.inflights[it.Seq]
		if p.object != nil {
			l.queue.done(p.object)
		}
		*p = inflightEvent{item: publisher.Item{Settler: l, Seq: it.Seq}}
		l.free = append(l.free, p)
	}
	if len(l.free) == len(l.inflights) {
		l.inflights, l.free = nil, nil
	}
	l.cond.Broadcast()
}

// waitEmpty waits until everything that was passed on is settled.
func (l *Listener) waitEmpty(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ratelimit.WaitCond(ctx, l.cond, func() bool { return len(l.free) == len(l.inflights) })
}

func (l *Listener) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inflights) - len(l.free)
}

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
	// SeenSince returns the version since which everything was seen, in an epoch of the server's
	// history; ok is false during a list, and before the first. It is asked with Follows only.
	SeenSince func() (from resource.Version, epoch int, ok bool)
	// HoldsEarlierRun reports whether a sink that was unavailable before holds events of an earlier run, and
	// the epoch of the latest of them. It waits until the sink is available. nil: entries do not
	// ask.
	HoldsEarlierRun func(ctx context.Context, sink string) (holds bool, epoch int, err error)
	// Gaps counts the gaps that only a listener knows of, by reason.
	Gaps   *metric.Counters
	Logger *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// readSize is how many changes a listener takes from the log at once.
const readSize = 256
