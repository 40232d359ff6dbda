package standby

import (
	"context"
	"slices"
	"sync"

	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// Adder takes items: *publisher.Publisher.
type Adder interface {
	Add(ctx context.Context, items []*publisher.Item) error
}

// RelayConfig of a Relay.
type RelayConfig struct {
	// Next takes the items once this replica leads.
	Next Adder
	// History of the unit, for what is about a whole list; asked without any lock held.
	History func() (from resource.Version, epoch int, ok bool)
	// Exists says whether there is another object by now under the name of the one that an item is about; asked without any lock held.
	Exists func(it *publisher.Item) bool
	// Room bounds what all relays of a sink hold; required.
	Room *Room
}

// Relay stands between one listener and its publisher. It has Add as a publisher has, called by one goroutine; the other methods may be
// called by another.
type Relay struct {
	cfg RelayConfig

	settling sync.Mutex // held, before mu, while what was held is settled, or taken back
	mu       sync.Mutex
	progress Unit              // guarded by mu: of the leader, or of the one before this replica
	held     []*publisher.Item // guarded by mu: what that does not cover, in order
	leading  bool              // guarded by mu
	passing  bool              // guarded by mu: what was held has been handed on, and what comes now passes
	handed   chan struct{}     // closed when passing is set
	all      bool              // guarded by mu: the leader has ended the unit, after everything
	closed   bool              // guarded by mu: the listener has ended
}

// NewRelay makes one that follows.
func NewRelay(cfg RelayConfig) *Relay { return &Relay{cfg: cfg, handed: make(chan struct{})} }

// Add settles what the leader's progress covers, and holds the rest; it blocks while the relays of the sink hold as much as they may. Once this
// replica leads, it settles what the one before has covered and passes the rest on. With an error, what of the items is neither settled nor
// with the publisher is the caller's again.
func (r *Relay) Add(ctx context.Context, items []*publisher.Item) error {
	all := items
	for len(items) > 0 {
		covered, open, leading := r.sort(items)
		settle(covered)
		if leading {
			open = r.stillOwed(open)
		}
		if len(open) == 0 {
			return nil
		}
		if leading {
			return r.passOn(ctx, open)
		}
		n, err := r.hold(ctx, open)
		if err != nil && r.takeBack(all) {
			return err
		}
		items = open[n:] // with an error it leads meanwhile
	}
	return nil
}

// sort tells what is covered from what is not.
func (r *Relay) sort(items []*publisher.Item) (covered, open []*publisher.Item, leading bool) {
	from, epoch, whole := r.cfg.History()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range items {
		if r.coversLocked(&it.Cover, from, epoch, whole) {
			covered = append(covered, it)
		} else {
			open = append(open, it)
		}
	}
	return covered, open, r.leading
}

func (r *Relay) coversLocked(c *publisher.Cover, from resource.Version, epoch int, whole bool) bool {
	p := &r.progress
	switch {
	case c.Repeats:
		return !r.leading
	case r.all:
		return !r.leading
	case p.Delivered == "" || c.Epoch > p.Epoch:
		return false
	case p.owes(c): // later versions make up for what was not sent of an object, but not for its end
		return false
	case c.Selection != "" && !c.Selection.NotNewer(p.Selection): // the leader may not know yet that the object is selected, or is not
		return false
	case c.Epoch < p.Epoch: // before it listed what came after, the leader has delivered all of it
		return true
	case c.OfList:
		return whole && epoch == p.Epoch && from.NotNewer(p.Delivered)
	default:
		return c.Version.NotNewer(p.Delivered)
	}
}

// hold takes the first item, and those behind it for which there is room; none when this replica leads meanwhile, or the progress moved.
func (r *Relay) hold(ctx context.Context, items []*publisher.Item) (n int, err error) {
	changed := r.changed()
	if err := r.cfg.Room.wait(ctx, changed); err != nil || changed() {
		return 0, err
	}
	for n < len(items) && r.cfg.Room.take(size(items[n])) {
		n++
	}
	if !r.keep(items[:n]) {
		r.cfg.Room.give(items[:n])
		return 0, nil
	}
	return n, nil
}

// keep adds to what is held, unless this replica leads.
func (r *Relay) keep(items []*publisher.Item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		r.held = append(r.held, items...)
	}
	return !r.leading
}

// takeBack gives the caller back what is held of its items, unless this replica leads meanwhile.
func (r *Relay) takeBack(items []*publisher.Item) bool {
	r.settling.Lock() // what is being settled is not held any more, and not yet settled
	defer r.settling.Unlock()
	r.mu.Lock()
	if r.leading {
		r.mu.Unlock()
		return false
	}
	var back []*publisher.Item
	r.held = slices.DeleteFunc(r.held, func(it *publisher.Item) bool {
		mine := slices.Contains(items, it)
		if mine {
			back = append(back, it)
		}
		return mine
	})
	r.mu.Unlock()
	r.cfg.Room.give(back)
	return true
}

// changed gives a function that says whether something has changed since now for which a wait should end.
func (r *Relay) changed() func() bool {
	look := func() (Unit, bool, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.progress, r.leading, r.all
	}
	progress, leading, all := look()
	return func() bool {
		p, l, a := look()
		return p != progress || l != leading || a != all
	}
}

// Follow notes the leader's progress and settles what it covers. Of the one before, after Lead, it is final.
func (r *Relay) Follow(progress Unit) {
	r.mu.Lock()
	r.progress = progress
	r.mu.Unlock()
	r.settleCovered()
}

// FollowToEnd notes that the leader has ended the unit: everything of it is delivered.
func (r *Relay) FollowToEnd() {
	r.mu.Lock()
	r.all = true
	r.mu.Unlock()
	r.settleCovered()
}

// Look settles what is covered by now, since the unit's history may have got on.
func (r *Relay) Look() { r.settleCovered() }

func (r *Relay) settleCovered() {
	r.settling.Lock()
	defer r.settling.Unlock()
	from, epoch, whole := r.cfg.History()
	r.mu.Lock()
	var covered []*publisher.Item
	if !r.leading { // then what was held is the publisher's
		open := r.held[:0]
		for _, it := range r.held {
			if r.coversLocked(&it.Cover, from, epoch, whole) {
				covered = append(covered, it)
			} else {
				open = append(open, it)
			}
		}
		clear(r.held[len(open):])
		r.held = open
	}
	r.mu.Unlock()
	r.cfg.Room.give(covered)
	settle(covered)
}

// Lead hands on what is held, and lets everything pass that comes later. It blocks as the publisher's Add does. A second call does nothing.
func (r *Relay) Lead(ctx context.Context) error {
	r.mu.Lock()
	again := r.leading || r.closed
	r.leading = true
	r.mu.Unlock()
	if again {
		return nil
	}
	for {
		held, passing := r.toHandOn()
		if passing {
			close(r.handed)
			return nil
		}
		r.cfg.Room.give(held)
		if held = r.stillOwed(held); len(held) == 0 {
			continue
		}
		if err := r.cfg.Next.Add(ctx, held); err != nil {
			return err
		}
	}
}

// toHandOn takes what is held; when that is nothing, what comes from now on passes.
func (r *Relay) toHandOn() (held []*publisher.Item, passing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, r.held = r.held, nil
	r.passing = len(held) == 0
	return held, r.passing
}

// passOn waits until what was held before has been handed on. A caller that can't wait so long leaves its items to Lead.
func (r *Relay) passOn(ctx context.Context, items []*publisher.Item) error {
	select {
	case <-r.handed:
	case <-ctx.Done():
		if r.leave(items) {
			return nil
		}
	}
	return r.cfg.Next.Add(ctx, items)
}

// leave puts items behind what Lead is handing on, unless it has done so with everything.
func (r *Relay) leave(items []*publisher.Item) bool {
	r.mu.Lock()
	passing := r.passing
	if !passing {
		r.held = append(r.held, items...)
	}
	r.mu.Unlock()
	if !passing {
		r.cfg.Room.force(items)
	}
	return !passing
}

// Leads says whether items go to the publisher, or have gone there.
func (r *Relay) Leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leading
}

// Close forgets what is held, unless this replica leads: the listener has ended, and knows that none of it is settled.
func (r *Relay) Close() {
	r.mu.Lock()
	var held []*publisher.Item
	if !r.leading {
		held, r.held, r.closed = r.held, nil, true
	}
	r.mu.Unlock()
	r.cfg.Room.give(held)
}

// Held is how many items wait for the leader.
func (r *Relay) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// settle tells the settlers. All items of a relay have the same.
func settle(items []*publisher.Item) {
	if len(items) > 0 {
		items[0].Settler.Settle(items)
	}
}

// size is what an item takes in memory, about.
func size(it *publisher.Item) int { return 768 + len(it.Message.Event.Data) }

// Room bounds what all relays of a sink hold in memory. One item always fits.
type Room struct {
	max int

	mu    sync.Mutex
	cond  *sync.Cond // signalled when there is more room, or a relay has news
	bytes int        // guarded by mu
}

// NewRoom makes room for so many bytes.
func NewRoom(max int) *Room {
	r := &Room{max: max}
	r.cond = sync.NewCond(&r.mu)
	return r
}

// wait waits until there is room, or something else says that waiting is over.
func (r *Room) wait(ctx context.Context, over func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return condition.Wait(ctx, r.cond, func() bool { return r.bytes < r.max || over() })
}

// take takes bytes if there is room for any.
func (r *Room) take(bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes >= r.max {
		return false
	}
	r.bytes += bytes
	return true
}

// force takes what items need, whether it is there or not.
func (r *Room) force(items []*publisher.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range items {
		r.bytes += size(it)
	}
}

// give gives back what items took, and wakes whoever waits: there is news, even with no items.
func (r *Room) give(items []*publisher.Item) {
	bytes := 0
	for _, it := range items {
		bytes += size(it)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= bytes
	r.cond.Broadcast()
}
