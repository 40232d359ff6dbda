package standby

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// Publisher takes items, and gives them back: *publisher.Publisher.
type Publisher interface {
	Add(ctx context.Context, items []*publisher.Item) error
	TryAdd(items []*publisher.Item) bool
	Detach(ctx context.Context, s publisher.Settler) (tried []*publisher.Item)
}

// RelayConfig of a Relay.
type RelayConfig struct {
	// Next takes the items once this replica leads.
	Next Publisher
	// History of the unit, for what is about a whole list; asked without any lock held.
	History func() (from resource.Version, epoch int, ok bool)
	// Room bounds what all relays of a sink hold; required.
	Room *Room
}

// Relay stands between one listener and its publisher. It has Add and Detach as a publisher has;
// Add is called by one goroutine, the other methods may be called by another.
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

	endLead context.CancelCauseFunc // guarded by mu: ends Lead; nil while it does not run
	leads   sync.WaitGroup          // of Lead; waited for once closed is set
}

// NewRelay makes one that follows.
func NewRelay(cfg RelayConfig) *Relay { return &Relay{cfg: cfg, handed: make(chan struct{})} }

// Parts asks the publisher, once this replica leads. Before that nothing is sent.
func (r *Relay) Parts(ctx context.Context, e *event.Event) (int, error) {
	next, ok := r.cfg.Next.(interface {
		Parts(ctx context.Context, e *event.Event) (int, error)
	})
	r.mu.Lock()
	leading := r.leading
	r.mu.Unlock()
	if !ok || !leading {
		return 0, nil
	}
	return next.Parts(ctx, e)
}

// Demand is the publisher's, once this replica leads. Before that any number can be settled.
func (r *Relay) Demand() (items int, changed <-chan struct{}) {
	next, ok := r.cfg.Next.(interface {
		Demand() (items int, changed <-chan struct{})
	})
	r.mu.Lock()
	leading := r.leading
	r.mu.Unlock()
	if !ok || !leading {
		return math.MaxInt, nil
	}
	return next.Demand()
}

// Add settles what the leader's progress covers, and holds the rest; it blocks while the relays of
// the sink hold as much as they may. Once this replica leads, it settles what the one before has
// covered and passes the rest on. After an error some of the items may be settled until Detach.
func (r *Relay) Add(ctx context.Context, items []*publisher.Item) error {
	for len(items) > 0 {
		covered, open, leading := r.sort(items)
		settle(covered)
		if len(open) == 0 {
			return nil
		}
		if leading {
			return r.passOn(ctx, open)
		}
		n, err := r.hold(ctx, open)
		if err != nil {
			return err
		}
		items = open[n:]
	}
	return nil
}

// TryAdd passes items on as the publisher's TryAdd does, once this replica leads and has handed on
// what was held, unless the one before has covered some of them.
func (r *Relay) TryAdd(items []*publisher.Item) bool {
	select {
	case <-r.handed:
	default:
		return false
	}
	covered, _, _ := r.sort(items)
	return len(covered) == 0 && r.cfg.Next.TryAdd(items)
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

// hold takes the first item, and those behind it for which there is room; none when this replica
// leads meanwhile, or the progress moved.
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

// changed gives a function that reports whether something has changed since now for which a wait
// should end.
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

// Follow notes the leader's progress and settles what it covers. Of the one before, after Lead, it
// is final.
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

// errDetached ends a Lead for Detach.
var errDetached = errors.New("the listener has ended")

// Lead hands on what is held, and lets everything pass that comes later. It blocks as the
// publisher's Add does. A second call does nothing.
func (r *Relay) Lead(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !r.beginLead(end) {
		return nil
	}
	defer r.leads.Done()
	for {
		held, passing := r.toHandOn()
		if passing {
			close(r.handed)
			return nil
		}
		r.cfg.Room.give(held)
		if err := r.cfg.Next.Add(ctx, held); errors.Is(context.Cause(ctx), errDetached) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// beginLead reports whether Lead is to be done. end ends it.
func (r *Relay) beginLead(end context.CancelCauseFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading || r.closed {
		return false
	}
	r.leading, r.endLead = true, end
	r.leads.Add(1)
	return true
}

// toHandOn takes what is held; when that is nothing, what comes from now on passes.
func (r *Relay) toHandOn() (held []*publisher.Item, passing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, r.held = r.held, nil
	r.passing = len(held) == 0
	return held, r.passing
}

// passOn waits until what was held before has been handed on.
func (r *Relay) passOn(ctx context.Context, items []*publisher.Item) error {
	select {
	case <-r.handed:
		return r.cfg.Next.Add(ctx, items)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Detach forgets what is held, and takes the rest back from the publisher, as that does. The
// listener has ended; it is not called any more.
func (r *Relay) Detach(ctx context.Context, s publisher.Settler) (tried []*publisher.Item) {
	r.settling.Lock() // what is being settled is not held any more, and not yet settled
	r.mu.Lock()
	held := r.held
	r.held, r.closed = nil, true
	if r.endLead != nil {
		r.endLead(errDetached)
	}
	r.mu.Unlock()
	r.settling.Unlock()
	r.leads.Wait()
	r.cfg.Room.give(held)
	return r.cfg.Next.Detach(ctx, s)
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
