package informer

import (
	"iter"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// levels is what waits for a listener that is sent the newest states only, as client-go's workqueue
// has it: of each object the events to come, and at most one that is with the publisher. It holds
// places in the log and no objects, so what waits there may be large. It is guarded by the
// listener's lock.
type levels struct {
	// max bounds the events to come that are kept in mind. Beyond that the log is read no further
	// ahead.
	max int
	// keepFirst keeps the first of changes that collapse, since its old object is that of the
	// event.
	keepFirst bool

	objects map[resource.Key]*level
	ready   []*level // with something to send, and nothing with the publisher; first come, first served
	steps   int      // of all objects
	filled  bool     // max was reached, and half of it not since
}

// level is one object.
type level struct {
	key   resource.Key
	steps []step // in their order
	busy  bool   // an event is with the publisher
}

// step is one event to come: that of the change at last, in the place of all from first on. Those
// between the two are settled.
type step struct {
	level       *level
	first, last changelog.Position // positions; the same when nothing has collapsed, or nothing of the first is needed
	op          event.Op
	uid         string
	added       bool // the listener was sent nothing of this object: it is an Added, whatever the last change is
	observed    time.Time
	tried       bool // the sink may have it: it is sent as it was
}

func newLevels(max int, keepFirst bool) *levels {
	return &levels{max: max, keepFirst: keepFirst, objects: map[resource.Key]*level{}}
}

// add notes a change and gives the positions of those that are needless by that, the new one
// perhaps among them.
//
// The older states of an object are, when it has changed again or is gone. A delete is not: another
// life may follow, and whoever was sent something of this one, maybe before a crash, has to be told
// of its end. A Sync is needless beside any change, which tells more. What is quarantined is told
// each time.
func (ls *levels) add(s *changelog.Header) (needless []changelog.Position) {
	lv := ls.object(s.Key)
	if len(lv.steps) == 0 {
		ls.push(lv, s)
		return nil
	}
	last := &lv.steps[len(lv.steps)-1]
	switch {
	case s.Kind == changelog.OfQuarantined || last.op == event.Quarantined, last.tried && !s.Tried:
		ls.push(lv, s)
	case last.op == event.Synced:
		needless = append(needless, last.last)
		*last = newStep(lv, s, last.observed)
	case s.Op == event.Synced && last.op != event.Deleted:
		needless = append(needless, s.Position)
	case last.op == event.Deleted || last.uid != s.UID:
		ls.push(lv, s)
	default:
		needless = ls.collapse(last, s)
	}
	return needless
}

// collapse puts a later change of an object in the place of an earlier one.
func (ls *levels) collapse(last *step, s *changelog.Header) (needless []changelog.Position) {
	if last.first != last.last {
		needless = append(needless, last.last)
	}
	before := *last
	*last = newStep(before.level, s, before.observed)
	if s.Op != event.Deleted && (before.added || ls.keepFirst) {
		last.first, last.added = before.first, last.added || before.added
		return needless
	}
	return append(needless, before.first)
}

// object finds one, or makes it.
func (ls *levels) object(key resource.Key) *level {
	lv := ls.objects[key]
	if lv == nil {
		key = resource.Key(strings.Clone(string(key))) // it may share an object's memory
		lv = &level{key: key}
		ls.objects[key] = lv
	}
	return lv
}

func newStep(lv *level, s *changelog.Header, observed time.Time) step {
	return step{
		level: lv, first: s.Position, last: s.Position, op: s.Op, uid: strings.Clone(s.UID), added: s.Op == event.Added, observed: observed, tried: s.Tried,
	}
}

func (ls *levels) push(lv *level, s *changelog.Header) {
	if len(lv.steps) == 0 && !lv.busy {
		ls.ready = append(ls.ready, lv)
	}
	lv.steps = append(lv.steps, newStep(lv, s, s.Observed))
	ls.steps++
}

// full reports whether no more is to be added: from when max is reached until half of it is sent,
// since what is read and not added is read again.
func (ls *levels) full() bool {
	ls.filled = ls.steps >= ls.max || ls.filled && ls.steps > ls.max/2
	return ls.filled
}

// take gives up to n events to send, of different objects.
func (ls *levels) take(n int) []step {
	n = min(n, len(ls.ready))
	taken := make([]step, n)
	for i, lv := range ls.ready[:n] {
		taken[i] = lv.steps[0]
		lv.steps, lv.busy = lv.steps[1:], true
		ls.ready[i] = nil
	}
	ls.steps -= n
	if ls.ready = ls.ready[n:]; len(ls.ready) == 0 {
		ls.ready = nil
	}
	return taken
}

// done notes that the event of an object that was taken is settled.
func (ls *levels) done(lv *level) {
	lv.busy = false
	if len(lv.steps) > 0 {
		ls.ready = append(ls.ready, lv)
	} else {
		delete(ls.objects, lv.key)
	}
}

// all are the events to come, in no order.
func (ls *levels) all() iter.Seq[*step] {
	return func(yield func(*step) bool) {
		for _, lv := range ls.objects {
			for i := range lv.steps {
				if !yield(&lv.steps[i]) {
					return
				}
			}
		}
	}
}
