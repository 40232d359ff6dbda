package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// errBehind says that an earlier item of the same object has no lane yet.
var errBehind = errors.New("an earlier event of the object has no lane yet")

// object names what must stay in order while the sink can't tell its lane.
type object struct{ group, resource, namespace, name string }

func objectOf(e *event.Event) object {
	return object{e.Group, e.Resource, e.Namespace, e.Name}
}

// isAside says whether an earlier item of the same object was set aside. The count spares the lock: it is
// raised by the same goroutine that adds the object's later items.
func (p *Publisher) isAside(it *Item) bool {
	if p.asideCount.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aside[objectOf(it.Message.Event)] != nil
}

// setAside keeps an item, and with it the later ones of its object, until the sink can tell its lane.
func (p *Publisher) setAside(it *Item, err error) {
	if !errors.Is(err, errBehind) {
		p.unrouted(err)
		p.warnings.route.warn(p.log, "can't tell where an event goes; its object waits", "subject", it.Message.Event.Subject, "err", err)
	}
	key := objectOf(it.Message.Event)
	p.mu.Lock()
	p.ages.push(it)
	it.queued = true
	if p.aside[key] == nil {
		p.aside[key] = &lane{}
	}
	p.aside[key].push(it)
	p.asideCount.Store(int64(len(p.aside)))
	p.mu.Unlock()
	signal(p.routeNow)
}

// retryRoutes asks again, after a backoff, for the lanes of what was set aside. It ends with ctx.
func (p *Publisher) retryRoutes(ctx context.Context) {
	backoff := ratelimit.Backoff{Initial: p.retry.Initial, Max: p.retry.Max}
	for {
		select {
		case <-p.routeNow:
		case <-ctx.Done():
			return
		}
		for p.asideCount.Load() > 0 {
			if ratelimit.SleepOr(ctx, backoff.Next(), p.hurry) != nil { // a drain does not wait
				return
			}
			if p.routeAside(ctx) {
				backoff.Reset()
			}
		}
		backoff.Reset()
	}
}

// routeAside tries every object once, and says whether one of them got on.
func (p *Publisher) routeAside(ctx context.Context) (progress bool) {
	p.mu.Lock()
	keys := slices.Collect(maps.Keys(p.aside))
	p.mu.Unlock()
	why := map[string]error{}
	var away error
	for _, key := range keys {
		moved, err := p.routeObject(ctx, key)
		progress = progress || moved
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return progress
		}
		why[err.Error()] = err
		if sinks.Classify(err) == sinks.Reconnect {
			away = err
		}
		p.warnings.route.warn(p.log, "still can't tell where an event goes; its object waits", "resource", key.resource, "namespace", key.namespace, "name", key.name, "err", err)
		if away != nil {
			break // asking for the others would only wait for the same broker
		}
	}
	if len(why) > 0 {
		p.unrouted(cmp.Or(away, together(why)))
	}
	return progress
}

// together names the first few reasons.
func together(why map[string]error) error {
	const most = 3
	texts := slices.Sorted(maps.Keys(why))
	first := strings.Join(texts[:min(most, len(texts))], "; ")
	if more := len(texts) - most; more > 0 {
		first += fmt.Sprintf("; and %d more", more)
	}
	return errors.New(first)
}

// routeObject moves the items of one object into their lanes, up to the first whose lane can't be told.
func (p *Publisher) routeObject(ctx context.Context, key object) (moved bool, err error) {
	for {
		p.mu.Lock()
		it := p.aside[key].head
		p.mu.Unlock()
		if err := p.nameLane(ctx, it); err != nil {
			return moved, err
		}
		moved = true
		if p.moveIn(key) {
			return moved, nil
		}
	}
}

// moveIn moves the first item of an object from aside into its lane, and says whether it was the last. The object
// leaves p.aside in the same critical section, so that a later item finds either the object or the lane.
func (p *Publisher) moveIn(key object) (last bool) {
	p.mu.Lock()
	waiting := p.aside[key]
	fresh := p.putLocked(waiting.pop())
	if last = waiting.head == nil; last {
		delete(p.aside, key)
		p.asideCount.Store(int64(len(p.aside)))
	}
	p.mu.Unlock()
	if fresh != nil {
		p.queue.Add(fresh)
	}
	return last
}

// signal leaves a token in a channel with one slot. It never blocks.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
