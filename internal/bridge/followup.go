package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
)

// followUpPatience is how long FollowUp waits for the sink.
const followUpPatience = time.Minute

// FollowUp publishes events to a sink, each about a change of an object that was read before
// Event.Observed, in this process or an earlier one. It comes behind the change: those are sent of
// which the sink has acknowledged the changes, and those of informers that do not feed it need not
// be. For each of both is a function in settled; nil for another, also while a resource is not
// watched or the configuration changes. Call it when the event will not
// be sent again: until then the sink's position stays before it, and what a crash lets be sent
// again with the same id is not stored twice. The errors are those of Resend.
func (b *Bridge) FollowUp(
	ctx context.Context, sink string, events []*event.Event,
) (settled []func(), err error) {
	out, err := b.readySink(ctx, sink)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, followUpPatience)
	defer cancel()
	settled = make([]func(), len(events))
	delivered := out.delivered.look(b.informers.all(), sink)
	var sent []*event.Event
	var indices []int
	for i, e := range events {
		switch isDelivered, isFed := delivered.has(e); {
		case !isFed:
			settled[i] = func() {}
		case isDelivered:
			sent, indices = append(sent, e), append(indices, i)
		}
	}
	w := newResendWaiter(len(sent))
	w.keepsHolds = true
	resent, err := w.send(ctx, out.publisher, sent, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, i := range indices {
		if resent[k].Outcome != "" {
			settled[i] = w.holds[k].Release
		}
	}
	return settled, err
}

// deliveries are how far a sink has acknowledged what informers have read.
type deliveries struct {
	mu    sync.Mutex
	units map[*informer.Informer]*delivery // guarded by mu
}

// delivery is how far it has acknowledged what one informer has read.
type delivery struct {
	// Everything that was read before until, and in this process up to version.
	until   time.Time
	version resource.Version
	// read is what was read at a time.
	read resource.Version
	at   time.Time
}

// oldRun is how long after it was stored a change was read by this process, or never will be.
const oldRun = 15 * time.Minute

// deliveredChanges answers as of one moment.
type deliveredChanges struct {
	units map[*informer.Informer]delivery
	// feeds has the informers of which a unit is there, and whether they feed the sink.
	feeds map[string]bool
}

// look asks the informers.
func (d *deliveries) look(units []*informer.Informer, sink string) deliveredChanges {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := deliveredChanges{map[*informer.Informer]delivery{}, map[string]bool{}}
	known := map[*informer.Informer]*delivery{}
	for _, u := range units {
		began, s := time.Now(), u.Status()
		pendingFor, isFed := s.OldestSeconds[sink]
		now.feeds[u.Config().Informer] = isFed
		if !isFed {
			continue
		}
		of := d.units[u]
		if of == nil {
			of = &delivery{read: resource.Version(s.Version), at: began}
		}
		of.until = began.Add(-time.Duration(pendingFor * float64(time.Second)))
		if s.QueuedDeltas > 0 { // they may be older
			of.until = time.Time{}
		}
		if of.until.After(of.at) {
			of.version, of.read, of.at = of.read, resource.Version(s.Version), began
		}
		known[u], now.units[u] = of, *of
	}
	d.units = known
	return now
}

// has reports whether the sink has acknowledged the change that an event is about. A process before
// may have read the change, and not passed it on: this one reads it again. isFed is false where the
// sink gets no changes of the informer; where nothing of it is there, once the change is old.
func (d *deliveredChanges) has(e *event.Event) (isDelivered, isFed bool) {
	isOld := time.Since(e.Observed) > oldRun
	for u, of := range d.units {
		c := u.Config()
		if c.Informer != e.Informer || c.Type.Resource != e.Resource || c.Type.Group != e.Group ||
			c.Namespace != "" && c.Namespace != e.Namespace {
			continue
		}
		isRead := resource.Version(e.ResourceVersion).NotNewer(of.version) || isOld
		return isRead && of.until.After(e.Observed), true
	}
	feeds, isThere := d.feeds[e.Informer]
	return false, (feeds || !isThere) && !isOld
}
