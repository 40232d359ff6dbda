package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// retryRoutes asks again, after a backoff, for the lanes of unrouted items. It ends with ctx.
func (p *Publisher) retryRoutes(ctx context.Context) {
	backoff := ratelimit.Backoff{Initial: p.cfg.Retry.Initial, Max: p.cfg.Retry.Max}
	for {
		select {
		case <-p.unrouted.now:
		case <-ctx.Done():
			return
		}
		for p.unrouted.count.Load() > 0 {
			if ratelimit.SleepOr(ctx, backoff.Next(), p.draining) != nil { // a drain does not wait
				return
			}
			if p.routeWaiting(ctx) {
				backoff.Reset()
			}
		}
		backoff.Reset()
	}
}

// routeWaiting tries every object once, and reports whether one of them got a lane.
func (p *Publisher) routeWaiting(ctx context.Context) (progress bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	keys := slices.Collect(maps.Keys(p.unrouted.objects))
	p.unrouted.cancel = cancel
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
		p.warnings.route.Warn(p.cfg.Log, "still can't find out where an event goes; its object waits",
			"resource", key.resource, "namespace", key.namespace, "name", key.name, "err", err)
		if away != nil {
			break // asking for the others would only wait for the same broker
		}
	}
	if len(why) > 0 {
		p.routeFailed(cmp.Or(away, together(why)))
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

// routeObject moves the items of one object into their lanes, up to the first whose lane is
// unknown.
func (p *Publisher) routeObject(ctx context.Context, key object) (moved bool, err error) {
	for {
		it := p.askFor(key)
		if it == nil {
			return moved, nil
		}
		err := p.nameLane(ctx, it)
		p.moveIn(key, err)
		if err != nil {
			return moved, err
		}
		moved = true
	}
}

// askFor returns the first item of an object, to ask the sink for its lane; nil for none.
func (p *Publisher) askFor(key object) *Item {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.unrouted.objects[key]
	if w == nil {
		return nil
	}
	p.unrouted.asked = key
	return w.lane.head
}

// moveIn moves the first item of an object into its lane, unless err says why it has none. The
// object leaves p.unrouted in the same critical section, so that a later item finds either the
// object or the lane.
func (p *Publisher) moveIn(key object, err error) {
	var fresh *lane
	var left takenItems
	p.mu.Lock()
	p.unrouted.asked = object{}
	if err != nil {
		p.refuseLocked(key, err)
	} else {
		it := p.unrouted.popLocked(key)
		if d := p.detachmentOfLocked(it); d != nil {
			p.reclaimLocked(d, it, &left)
		} else {
			fresh = p.putLocked(it)
		}
	}
	p.sweepUnroutedLocked(&left)
	p.mu.Unlock()
	p.handBack(&left)
	if fresh != nil {
		p.queue.Add(fresh)
	}
}
