package bridge

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/standby"
)

// Replicas get a changed configuration one after the other, and one may have to take over in between. So the leader tells which sinks it feeds,
// and its progress is about these only.

// relay is what stands before the publisher of one listener.
type relay struct {
	*standby.Relay
	sink string
	key  string // of the sink
}

// handOn is Lead in a goroutine of its own. A sink that was replaced takes nothing any more; who follows its unit reads again what it had.
func (r *relay) handOn(ctx context.Context) error {
	if err := r.Lead(ctx); !errors.Is(err, publisher.ErrStopped) {
		return err
	}
	return nil
}

// behindRelay is what a listener adds its events to.
func (u *unit) behindRelay(b *Bridge, out *outlet) informer.Publisher {
	if b.replica == nil {
		return out.Publisher
	}
	r := &relay{sink: out.name, key: out.key, Relay: standby.NewRelay(standby.RelayConfig{
		Next: out.Publisher, Room: out.room,
		History: func() (resource.Version, int, bool) { return u.informer.History() },
	})}
	u.relays = append(u.relays, r)
	return r
}

// feeds are the keys of the sinks that the unit sends to, never nil.
func (u *unit) feeds() []string {
	keys := make([]string, 0, len(u.relays))
	for _, relay := range u.relays {
		keys = append(keys, relay.key)
	}
	slices.Sort(keys)
	return keys
}

// progressFor is what the leader has told of a unit's way to one of its sinks: nothing of a sink that it does not feed. What is for that one
// waits here.
func (r *replica) progressFor(u *unit, to *relay) standby.Unit {
	p, ok := r.progressOf(u)
	if !ok || !r.feeds(u.cfg.Informer, to.key, true) {
		return standby.Unit{}
	}
	if r.isDoubtful(u, &p) {
		return standby.Unit{}
	}
	return p
}

// doubtPatience is how long progress may be far ahead of a unit's own watch before that is reported: a
// replica that starts again catches up within seconds.
const doubtPatience = time.Minute

// isDoubtful reports whether the leader's progress of a unit is too far ahead to be believed.
func (r *replica) isDoubtful(u *unit, p *standby.Unit) bool {
	seen := u.reflector.Status().Version
	doubtful := p.IsFarAheadOf(seen)
	r.mu.Lock()
	since, known := r.doubtful[u.name]
	warn := false
	switch {
	case !doubtful:
		delete(r.doubtful, u.name)
	case !known:
		r.doubtful[u.name] = time.Now()
	case !since.IsZero() && time.Since(since) >= doubtPatience:
		r.doubtful[u.name], warn = time.Time{}, true // once
	}
	r.mu.Unlock()
	if warn {
		r.log.Warn("the leader's progress of a resource is far ahead of this replica's own watch, and is not believed: has somebody else written to the Lease?",
			"unit", u.name, "delivered", p.Delivered, "seen", seen)
	}
	return doubtful
}

// feeds says whether the leader, or the one before this replica, sends an informer's changes to a sink. unknown is the answer where it has not told.
func (r *replica) feeds(informer, key string, unknown bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress.Feeds == nil {
		return unknown
	}
	return slices.Contains(r.progress.Feeds[informer], key)
}

// tellsOf says whether the leader has told of a unit, whatever it selects.
func (r *replica) tellsOf(unit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.progress.Units[unit]
	return ok
}
