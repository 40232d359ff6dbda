package informer

import (
	"cmp"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/changelog"
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
	ofProgress // everything up to a version is before it
)

// facts are what a change says. They do not change once it is in the log.
type facts struct {
	event.Change
	Kind       kind                 `json:"kind,omitempty"`
	Relist     *resource.Relist     `json:"relist,omitempty"`     // of a gap
	Listing    event.Listing        `json:"listing,omitzero"`     // of a list that was worked through
	Since      resource.Version     `json:"since,omitempty"`      // the list is about what came after it; "" for all
	Losses     *losses              `json:"losses,omitempty"`     // of what was dropped
	Unreadable *resource.Unreadable `json:"unreadable,omitempty"` // of what was quarantined
	// Unasked is set of a gap that is only told when the sink's broker holds events of an earlier run.
	// The sink was unavailable before the list, so it is asked when the gap's turn comes.
	Unasked bool `json:"unasked,omitempty"`
	// Told and OfList are those of its Decision.
	Told   resource.Version `json:"told,omitempty"`
	OfList bool             `json:"ofList,omitempty"`

	// forget and written are those of its Decision too. They matter until the change is settled, and
	// what lies on disk is.
	forget  bool
	written resource.Written

	place changelog.Position // among what the Tracker has
	// number orders the changes of this informer.
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

// ofAll reports whether the change is about all objects, or nobody knows about which: nothing may pass
// it. What is quarantined of a known object is in order with that object's events only, so it waits for
// no other one, which may have no topic.
func (k kind) ofAll(key resource.Key) bool {
	return k != ofObject && (k != ofQuarantined || key == "")
}

// event makes the change's event for one listener.
func (c *facts) event(l *ListenerConfig) event.Event {
	m := l.Maker
	if l.epochs > 0 {
		raised := *c
		raised.Epoch += l.epochs
		c = &raised
	}
	switch c.Kind {
	case ofGap:
		return m.Gap(c.Relist, c.Era, c.Observed)
	case ofSynced:
		return m.Synced(c.Version, c.Listing, c.Era, c.Observed)
	case ofDropped:
		return m.Dropped(c.Losses.Unread[l.Name], c.Era, c.position, c.Observed)
	case ofQuarantined:
		return m.Quarantined(c.Unreadable, c.Era, c.Observed)
	case ofProgress:
		return m.Progress(c.Version, c.Era, c.Observed)
	default:
		return m.Object(&c.Change)
	}
}

// settled is the state that the change leaves behind.
func (c *facts) settled() store.Settled {
	s := store.Settled{Object: c.Object, Seq: c.number, Record: store.Record{
		UID: c.UID, Version: c.Version, Written: c.written, EventTime: c.Time.UnixNano(),
	}}
	if c.Op == event.Deleted {
		s.Deleted, s.Object, s.Version = true, nil, cmp.Or(c.GoneAsOf, c.Version)
		if c.forget {
			s.Version = "" // a tombstone would cover it
		}
	}
	return s
}

// leavesState says whether the settled change is the object's settled state.
func (c *facts) leavesState() bool { return c.Kind == ofObject && c.Op != event.Synced }

// stateKey is that of the object of which the change leaves a state, "" for none.
func (c *facts) stateKey() resource.Key {
	if c.leavesState() {
		return c.Key
	}
	return ""
}

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
	out := &change{facts: facts{Change: ch}, size: changeOverhead}
	for _, obj := range []*resource.Object{ch.Object, ch.Old} {
		if obj != nil {
			out.size += len(obj.Raw)
		}
	}
	return out
}
