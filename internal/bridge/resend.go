package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// SendSnapshot lets the informers of a section send the objects that they know again, as synced and
// initial, each in order with its changes. Watches continue, and nothing is listed except the
// objects of stale bodies. It returns the units' names when they have begun; the log reports when
// they have ended. A snapshot that a stop or a change of the configuration interrupts is not
// continued. ErrStandby: another replica leads.
func (b *Bridge) SendSnapshot(
	ctx context.Context, req informer.SnapshotRequest,
) (names []string, err error) {
	// No other round is the same: those of resyncs are far smaller, and two requests do not come in
	// one millisecond.
	round := cmp.Or(req.Round, time.Now().UnixMilli())
	err = b.askReconciler(ctx, func(_ context.Context, r *reconciler) error {
		if err := r.b.replica.sends(); err != nil {
			return err
		}
		list, err := b.selectedBy(&req)
		if err != nil {
			return err
		}
		for _, u := range list {
			if !u.Snapshots.Start(&req, round) {
				return fmt.Errorf("informer %s: %w", u.Name(), ErrStopping)
			}
			names = append(names, u.Name())
		}
		return nil
	})
	return names, err
}

// selectedBy returns the informers that a request is about. All must be able to do it, or none
// does.
func (b *Bridge) selectedBy(req *informer.SnapshotRequest) (list []*informer.Informer, err error) {
	all := b.informers.all()
	if req.Informer != "" {
		all = b.unitsOf(req.Informer)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("informer %s: %w", req.Informer, ErrUnknown)
	}
	for _, u := range all {
		if !req.Selects(u.Config()) || req.Index != "" && !u.Objects.HasIndex(req.Index) {
			continue
		}
		if err := u.Snapshots.Check(req); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	switch {
	case len(list) > 0:
		return list, nil
	case req.Informer == "":
		return nil, fmt.Errorf("no informer has such a resource in such a namespace: %w", ErrUnknown)
	}
	return nil, fmt.Errorf("informer %s has no such resource in such a namespace: %w", req.Informer,
		ErrUnknown)
}

// ErrSinkNotReady is returned where a sink has to send: it is paused, or its broker is unavailable.
var ErrSinkNotReady = errors.New("the sink sends nothing now")

// ErrKeepsNewest is returned for a sink to which nothing may be sent again.
var ErrKeepsNewest = errors.New("its destination keeps the newest state of each object, which an " +
	"older event would replace")

// Resent is the result of an event that was sent again.
type Resent struct {
	Outcome publisher.Outcome // "" for no answer
	Refused error             // why the sink refused it; nil where it did not
}

// Resend publishes events to a sink once more, in their order for each object and with their ids,
// among the events of the informers. It returns the result of each, in the given order, when all
// are settled or ctx ends. A refused event goes to the dead letters; with returned to the caller
// alone. ErrUnknown, ErrKeepsNewest, ErrSinkNotReady; ErrStandby: another replica leads.
func (b *Bridge) Resend(
	ctx context.Context, sink string, events []*event.Event, returned bool,
) ([]Resent, error) {
	out, err := b.readySink(ctx, sink)
	if err != nil {
		return nil, err
	}
	return newResendWaiter(len(events)).send(ctx, out.publisher, events, returned)
}

// readySink returns a sink to which something can be sent again now.
func (b *Bridge) readySink(ctx context.Context, sink string) (out *sinkRunner, err error) {
	err = b.askReconciler(ctx, func(_ context.Context, r *reconciler) error {
		if err := r.b.replica.sends(); err != nil {
			return err
		}
		if out = r.b.sinks.get(sink); out == nil {
			return fmt.Errorf("sink %s: %w", sink, ErrUnknown)
		}
		if out.keepsNewest {
			return fmt.Errorf("sink %s: %w", sink, ErrKeepsNewest)
		}
		switch s := out.publisher.Status(); {
		case s.Paused:
			return fmt.Errorf("sink %s is paused (bridge resume sink %s): %w", sink, sink,
				ErrSinkNotReady)
		case !s.Connected:
			return fmt.Errorf("sink %s is unavailable: %s: %w", sink, s.LastError, ErrSinkNotReady)
		}
		return nil
	})
	return out, err
}

// detachPatience is how long a call of the sink with some of the events may continue after the
// caller has gone.
const detachPatience = 5 * time.Second

// resendWaiter collects the results of events that are sent again.
type resendWaiter struct {
	done       chan struct{} // closed when all are settled
	keepsHolds bool          // until the caller releases them

	mu     sync.Mutex
	resent []Resent                  // guarded by mu
	holds  []*publisher.PositionHold // guarded by mu
	left   int                       // guarded by mu
}

func newResendWaiter(events int) *resendWaiter {
	return &resendWaiter{
		resent: make([]Resent, events), holds: make([]*publisher.PositionHold, events), left: events,
		done: make(chan struct{}),
	}
}

func (r *resendWaiter) send(
	ctx context.Context, p *publisher.Publisher, events []*event.Event, returned bool,
) ([]Resent, error) {
	items := make([]*publisher.Item, len(events))
	for i, e := range events {
		items[i] = &publisher.Item{Settler: r, Seq: uint64(i), Return: returned}
		items[i].Message.Event = e
	}
	err := p.Add(ctx, items)
	if err == nil && len(items) > 0 {
		select {
		case <-r.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachPatience)
	defer cancel()
	p.Detach(patience, r) // what has no answer stays where it came from
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the answers say it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resent, err
}

// Settle implements publisher.Settler. Where no checkpoint covers these events, their holds are
// released at once: after a crash they are still where they came from, and can be sent again with
// the same ids.
func (r *resendWaiter) Settle(items []*publisher.Item) {
	r.mu.Lock()
	for _, it := range items {
		if r.keepsHolds {
			r.holds[it.Seq] = it.Hold
		} else {
			it.Hold.Release()
		}
		r.resent[it.Seq] = Resent{it.Outcome(), it.Refused()}
	}
	r.left -= len(items)
	isLast := r.left == 0
	r.mu.Unlock()
	if isLast {
		close(r.done)
	}
}

// followUpPatience is how long FollowUp waits for the sink.
const followUpPatience = time.Minute

// FollowUp publishes events to a sink, each about a change of an object that was read before
// Event.Observed, in this process or an earlier one. It comes behind the change: those are sent of
// which the sink has acknowledged the changes, and those of informers that do not feed it need not
// be. For each of both is a function in settled; nil for another. Call it when the event will not
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
type deliveredChanges map[*informer.Informer]delivery

// look asks the informers that feed a sink.
func (d *deliveries) look(units []*informer.Informer, sink string) deliveredChanges {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, known := deliveredChanges{}, map[*informer.Informer]*delivery{}
	for _, u := range units {
		began, s := time.Now(), u.Status()
		pendingFor, isFed := s.OldestSeconds[sink]
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
		known[u], now[u] = of, *of
	}
	d.units = known
	return now
}

// has reports whether the sink has acknowledged the change that an event is about. A process before
// may have read the change, and not passed it on: this one reads it again.
func (d deliveredChanges) has(e *event.Event) (isDelivered, isFed bool) {
	for u, of := range d {
		c := u.Config()
		if c.Informer != e.Informer || c.Type.Resource != e.Resource || c.Type.Group != e.Group ||
			c.Namespace != "" && c.Namespace != e.Namespace {
			continue
		}
		isRead := resource.Version(e.ResourceVersion).NotNewer(of.version) || time.Since(e.Observed) > oldRun
		return isRead && of.until.After(e.Observed), true
	}
	return false, false
}

// lossReport acts when a sink's destination has lost events. To a sink that keeps the newest state
// of each object all are sent again; to another a gap. The publisher's goroutine that inspects the
// sink owns it.
type lossReport struct {
	bridge      *Bridge
	sink        string
	keepsNewest bool
	round       int64           // of the loss
	done        map[string]bool // informers that have begun with it
}

func newLossReport(b *Bridge, sc *SinkConfig) *lossReport {
	return &lossReport{bridge: b, sink: sc.Name, keepsNewest: sc.KeepsNewest}
}

// send is publisher.Config.OnLoss. It returns an error while an informer can't report yet, and does
// not repeat what the others have reported.
func (r *lossReport) send(ctx context.Context, round int64) error {
	if round != r.round {
		r.round, r.done = round, map[string]bool{}
	}
	var failed error
	for _, u := range r.bridge.informers.all() {
		name := u.Name()
		if r.keepsNewest {
			name = u.Config().Informer
		}
		if r.done[name] {
			continue
		}
		err := r.report(ctx, u)
		failed, r.done[name] = errors.Join(failed, err), err == nil
	}
	return failed
}

func (r *lossReport) report(ctx context.Context, u *informer.Informer) error {
	name := u.Config().Informer
	if !r.keepsNewest {
		if !u.Snapshots.ReportLoss(r.sink, r.round) {
			return fmt.Errorf("informer %s: %w", name, ErrStopping)
		}
		return nil
	}
	_, err := r.bridge.SendSnapshot(ctx, informer.SnapshotRequest{
		Informer: name, Sink: r.sink, Round: r.round,
	})
	if errors.Is(err, informer.ErrUnknown) { // it does not feed the sink
		return nil
	}
	if err == nil {
		r.bridge.log.Info("all objects are sent again, since the sink's destination may lack some",
			"informer", name, "sink", r.sink)
	}
	return err
}
