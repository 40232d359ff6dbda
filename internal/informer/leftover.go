package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
)

// An informer can be ended while its sinks are away, and another go on with its state, without anything coming twice: Park puts what waits on
// disk, each listener's cursor says what of it is still to be acknowledged, and a Leftover tells the next listener to wait for that, rather than
// to add it to the publisher a second time, behind later changes of the same objects. Where it must not be sent as it was read, Withdraw takes it back from
// the publisher.

// Park writes everything that waits for sinks to the log on disk. The FIFO is closed; what is in it is decided before as far as there is room, and
// else is read again. When it returns nil, all that and where the listeners stand is durable, so that Run may be ended by its context without
// that anything is forgotten. It is called once.
func (i *Informer) Park(ctx context.Context) error {
	const moment = time.Second
	if !i.awaitDecided(ctx, moment) {
		close(i.park)
		if !i.awaitDecided(ctx, moment) {
			return fmt.Errorf("informer %s: %w", i.cfg.Name, errUndecided)
		}
	}
	if err := i.spool(ctx, time.Now()); err != nil {
		return fmt.Errorf("informer %s: put what waits on disk: %w", i.cfg.Name, err)
	}
	return nil
}

// errUndecided ends a controller that waits for room, and is returned by Park for one that waits for the disk.
var errUndecided = errors.New("the disk takes nothing")

// awaitDecided says whether the controller has ended, or does within a moment.
func (i *Informer) awaitDecided(ctx context.Context, moment time.Duration) bool {
	select {
	case <-i.decided:
		return true
	case <-time.After(moment):
	case <-ctx.Done():
	}
	return false
}

// Leftover is what a listener that has ended still has with its publisher. That goes on to send it.
type Leftover struct {
	listener  *listener
	positions []uint64 // in order
}

// Leftovers are, by sink, what the listeners have left. Run has returned, and what it has settled is not committed yet: what is settled between
// the two must be in one of them.
func (i *Informer) Leftovers() map[string]*Leftover {
	left := map[string]*Leftover{}
	for _, l := range i.listeners {
		if o := l.remains(); o != nil {
			left[l.cfg.Name] = o
		}
	}
	return left
}

// Empty says whether everything of it has been settled meanwhile.
func (o *Leftover) Empty() bool { return o.listener.inFlight() == 0 }

// Withdraw takes it back from its publisher, as far as it is not in a call of the sink just now: the next listener reads it again, from the log
// on disk, as that is now.
func (o *Leftover) Withdraw(p *publisher.Publisher) { p.Withdraw(o.listener) }

// Withdrawn is called by the publisher with items that it gives back. Their changes stay unsettled.
func (l *listener) Withdrawn(items []*publisher.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		p := l.parcels[it.Seq]
		for _, c := range []*change{p.first, p.change} {
			if c != nil {
				l.withdrawn = append(l.withdrawn, c.position)
			}
		}
		p.change, p.first, p.level, p.event = nil, nil, nil, event.Event{}
		l.free = append(l.free, p)
		it.Mark.Release()
		it.Mark = nil
	}
	slices.Sort(l.withdrawn)
	l.cond.Broadcast()
}

// Idle says whether nothing is with the publisher any more.
func (l *listener) Idle() bool { return l.inFlight() == 0 }

// owed are the positions of what was passed on and is not settled, in order: what is with the publisher, and what that has given back.
func (l *listener) owed() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(append(l.passedLocked(), l.withdrawn...)))
}

// without takes out of positions what has been settled meanwhile. A nil Leftover takes nothing.
func (o *Leftover) without(positions []uint64) []uint64 {
	if o == nil {
		return positions
	}
	left := o.listener.owed()
	return slices.DeleteFunc(positions, func(p uint64) bool {
		_, was := slices.BinarySearch(o.positions, p)
		_, is := slices.BinarySearch(left, p)
		return was && !is
	})
}

// passed are the positions of what is with the publisher, in order.
func (l *listener) passed() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passedLocked()
}

func (l *listener) passedLocked() (positions []uint64) {
	for _, p := range l.parcels {
		for _, c := range []*change{p.first, p.change} {
			if c != nil {
				positions = append(positions, c.position)
			}
		}
	}
	slices.Sort(positions)
	return positions
}

// remains are what the listener has with its publisher, nil for nothing. One that has not begun passes on what it was waiting for.
func (l *listener) remains() *Leftover {
	if l.cfg.After != nil { // nobody else changes it any more
		return l.cfg.After
	}
	if positions := l.passed(); len(positions) > 0 {
		return &Leftover{listener: l, positions: positions}
	}
	return nil
}

// awaitLeftover waits until what the listener before has left is settled, and takes that out of what is to be passed on.
func (l *listener) awaitLeftover(ctx context.Context) error {
	after := l.cfg.After
	if after == nil {
		return nil
	}
	if err := after.listener.waitEmpty(ctx); err != nil {
		return err
	}
	owed := after.listener.owed() // given back: it is read here
	settled := func(position uint64) bool {
		_, was := slices.BinarySearch(after.positions, position)
		_, is := slices.BinarySearch(owed, position)
		return was && !is
	}
	l.left = slices.DeleteFunc(l.left, func(c *change) bool { return settled(c.position) })
	l.leftover = slices.DeleteFunc(l.leftover, func(s sighting) bool { return settled(s.position) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cursor.pending = after.without(l.cursor.pending)
	l.cfg.After = nil
	return nil
}

// untaken frees the parcels that a call of the publisher did not take, since it was broken off. Their changes are read and not passed on.
func (l *listener) untaken(parcels []*parcel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var back []*change
	for _, p := range parcels {
		if p.change == nil || p.item.Queued() {
			continue
		}
		if p.first != nil {
			back = append(back, p.first)
		}
		back = append(back, p.change)
		p.first, p.change, p.level = nil, nil, nil
		l.free = append(l.free, p)
	}
	l.read = slices.Concat(back, l.read)
	l.cond.Broadcast()
}
