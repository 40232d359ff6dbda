package publisher

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// chunk is how many items are admitted at once: large enough to pay for the locks, small enough for
// adders to alternate.
const chunk = 256

// Add takes items in their order. It blocks while the sink is not open yet, and while the bounds of
// the queue are reached. Items of one object leave in the order in which Add took them; between
// concurrent calls there is no order.
//
// When ctx ends, or Run has ended (ErrStopped), Add has taken some of the items. These settle as
// others do until Detach takes them back. An adder that ends after such an error calls Detach.
func (p *Publisher) Add(ctx context.Context, items []*Item) error {
	if err := p.awaitOpen(ctx); err != nil {
		return err
	}
	for len(items) > 0 {
		next := items[:min(len(items), chunk)]
		now := time.Now()
		for _, it := range next {
			it.prepare(now)
		}
		n, err := p.capacity.acquire(ctx, next)
		if err != nil {
			return err
		}
		n, fewer, err := p.route(ctx, next[:n])
		if err != nil {
			return err
		}
		items = items[n:]
		if fewer == nil {
			continue
		}
		select {
		case <-fewer:
		case <-p.users.closed:
			return ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// awaitOpen waits until the sink is open.
func (p *Publisher) awaitOpen(ctx context.Context) error {
	select {
	case <-p.opened:
		return nil
	case <-p.users.closed:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hasEnded is the context of who does not wait.
var hasEnded = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// TryAdd takes all of the items, of one Settler, or none, and reports which. It never waits: it
// takes none while the sink is not open, where there is no room, or where the sink doesn't know a
// lane from memory.
func (p *Publisher) TryAdd(items []*Item) bool {
	select {
	case <-p.opened:
	default:
		return false
	}
	if len(items) > chunk || !p.users.enter() {
		return false
	}
	defer p.users.leave()
	now := time.Now()
	for _, it := range items {
		it.prepare(now)
	}
	if !p.capacity.tryAcquire(items) {
		return false
	}
	for _, it := range items {
		if !p.tryLane(it) {
			p.giveBack(items)
			return false
		}
	}
	for _, it := range items {
		p.recognize(it)
	}
	p.enqueue(items)
	return true
}

// tryLane asks the sink for the lane of an item, if it knows it from memory.
func (p *Publisher) tryLane(it *Item) bool {
	if it.Message.Event.Err != nil || p.isUnrouted(it) {
		return false
	}
	var err error
	it.lane, err = p.laneOf(hasEnded, it.Message.Event)
	return err == nil
}

// route puts items into their lanes. An item that can't be routed waits, and so do later ones of
// its object. When such items hold their part of the capacity, route returns how many items it
// took, and a channel that is closed when there are fewer of them; it has released the capacity of
// the rest.
func (p *Publisher) route(
	ctx context.Context, items []*Item,
) (n int, fewer <-chan struct{}, err error) {
	if !p.users.enter() {
		p.giveBack(items)
		return 0, nil, ErrStopped
	}
	defer p.users.leave()
	done := 0 // items before it are in their lanes
	for i, it := range items {
		err := p.findLane(ctx, it)
		if err == nil {
			continue
		}
		p.enqueue(items[done:i]) // before it, since its own object may be among them
		if ctx.Err() != nil {
			p.giveBack(items[i:])
			return i, nil, context.Cause(ctx)
		}
		if fewer := p.keepUnrouted(it, err); fewer != nil {
			p.giveBack(items[i:])
			return i, fewer, nil
		}
		done = i + 1
	}
	p.enqueue(items[done:])
	return len(items), nil, nil
}

// findLane asks the sink for the lane of an item; errBehind when an earlier item of its object
// waits for one.
func (p *Publisher) findLane(ctx context.Context, it *Item) error {
	if p.isUnrouted(it) {
		return errBehind
	}
	return p.nameLane(ctx, it)
}

// enqueue appends items to their lanes.
func (p *Publisher) enqueue(items []*Item) {
	var fresh [chunk]*lane
	n := 0
	p.mu.Lock()
	for _, it := range items {
		p.ages.push(it)
		if l := p.putLocked(it); l != nil {
			fresh[n] = l
			n++
		}
	}
	p.mu.Unlock()
	if n > 0 {
		p.queue.Add(fresh[:n]...)
	}
}

// Parts returns how many copies of an event about an informer the sink needs; 0 when one is enough.
// It waits until the sink knows: a single event would reach the readers of one part only. A refused
// event has no copies: it becomes a dead letter.
func (p *Publisher) Parts(ctx context.Context, e *event.Event) (int, error) {
	b, ok := p.cfg.Sink.(sinks.Broadcaster)
	if !ok {
		return 0, nil
	}
	if err := p.awaitOpen(ctx); err != nil {
		return 0, err
	}
	n, err := b.Parts(ctx, e)
	if isUnknown(ctx, err) {
		n, err = p.awaitParts(ctx, b, e, err)
	}
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	default:
		return 0, nil
	}
}

// isUnknown reports whether the sink may give an answer later: it has not refused the event.
func isUnknown(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && sinks.Classify(err) != sinks.Refused
}

// awaitParts asks again, after a backoff, until there is an answer. Meanwhile the event counts as
// unrouted, as an added one would: nothing else reports that a topic is missing.
func (p *Publisher) awaitParts(
	ctx context.Context, b sinks.Broadcaster, e *event.Event, err error,
) (n int, _ error) {
	p.unrouted.broadcasts.Add(1)
	defer p.unrouted.broadcasts.Add(-1)
	backoff := ratelimit.Backoff{Initial: p.cfg.Retry.Initial, Max: p.cfg.Retry.Max}
	for ; isUnknown(ctx, err); n, err = b.Parts(ctx, e) {
		p.routeFailed(err)
		p.warnings.route.Warn(p.cfg.Log, "can't find out where an event goes; its informer waits", "id",
			e.ID, "err", err)
		if err := ratelimit.Sleep(ctx, backoff.Next()); err != nil {
			return 0, err
		}
	}
	return n, err
}
