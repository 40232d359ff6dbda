package informer

import (
	"cmp"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// kind of a change.
type kind uint8

const (
	ofObject kind = iota
	ofGap
	ofSynced  // a list was worked through
	ofDropped // the log on disk was full
	ofQuarantined
)

// facts are what a change says. They do not change once it is in the log.
type facts struct {
	event.Change
	kind       kind
	relist     *resource.Relist // of a gap
	listing    event.Listing    // of a list that was worked through
	since      resource.Version // after which that list tells what happened; "" for from the start
	losses     *losses          // of what was dropped
	unreadable *resource.Unreadable

	// left says that nothing is remembered of a deleted object: its namespace left, and it may come again as it was.
	left bool
	// goneAsOf is, on an inferred delete, the version as of which the object was found to be gone.
	goneAsOf resource.Version
	// told is the version of what told the change, where that is not its own: on an inferred delete.
	told resource.Version
	// ofList says that an item of a list told the change that has no version: only the list's end says as of which version it holds.
	ofList bool

	seq uint64 // its place in the stream
	// number orders the changes of this informer: several can come of one place in the stream.
	number uint64
	// audience is the set of listeners it is for.
	audience uint64
	position uint64 // in the log
}

// change is one entry of the log: what happened, for whom, and how far it is settled.
type change struct {
	facts
	// size in the log, in bytes; 0 when it is settled by all, or is not in the log in memory. Guarded by the log's lock.
	size int
	// spooled: it lies in the log on disk too, and is settled for the tracker. Set under Informer.settling.
	spooled atomic.Bool
	// waiting counts the listeners that have not settled it.
	waiting atomic.Int32
	// marks are held for listeners that have settled it while others have not: as long as it may be passed on again after a crash.
	// Guarded by Informer.settling.
	marks []*publisher.Mark
}

// event makes the change's event for one listener.
func (c *facts) event(l *ListenerConfig) event.Event {
	m := l.Maker
	switch c.kind {
	case ofGap:
		return m.Gap(c.relist, c.Era, c.Observed)
	case ofSynced:
		return m.Synced(c.Version, c.listing, c.Era, c.Observed)
	case ofDropped:
		return m.Dropped(c.losses.Unread[l.Name], c.Era, c.position, c.Observed)
	case ofQuarantined:
		return m.Quarantined(c.unreadable, c.Era, c.Observed)
	default:
		return m.Object(&c.Change)
	}
}

// settled is the state that the change leaves behind.
func (c *facts) settled() store.Settled {
	s := store.Settled{Record: store.Record{UID: c.UID, Version: c.Version}, Object: c.Object, Seq: c.number}
	if c.Op == event.Deleted {
		s.Deleted, s.Object, s.Version = true, nil, cmp.Or(c.goneAsOf, c.Version)
		if c.left {
			s.Version = "" // a tombstone would cover it
		}
	}
	return s
}

// leavesState says whether the settled change is the object's settled state.
func (c *facts) leavesState() bool { return c.kind == ofObject && c.Op != event.Synced }

// letGo releases the marks: no restart will pass the change on again to those who held them.
func (c *change) letGo() {
	for _, m := range c.marks {
		m.Release()
	}
	c.marks = nil
}

// changeOverhead is what a change costs in the log besides its object: the struct and its places in queues, rounded up.
const changeOverhead = 512

// newChange makes a change of the delta that is being decided.
func (c *controller) newChange(ch event.Change) *change {
	ch.Observed = c.now
	out := &change{facts: facts{Change: ch, seq: c.place}, size: changeOverhead}
	for _, obj := range []*resource.Object{ch.Object, ch.Old} {
		if obj != nil {
			out.size += len(obj.Raw)
		}
	}
	return out
}
