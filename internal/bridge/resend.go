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

// lossReport acts when a sink's destination has lost events, or may have. To a sink that keeps the
// newest state of each object all are sent again; to another a gap. The publisher's goroutine that
// inspects the sink owns it.
type lossReport struct {
	bridge      *Bridge
	sink        string
	keepsNewest bool
	round       int64 // of the loss
	// began has the informers that ran when the loss was found, by whether they have reported it;
	// and those that started since, once nothing is left to do for them.
	began map[string]bool
	since time.Time
}

func newLossReport(b *Bridge, sc *SinkConfig) *lossReport {
	return &lossReport{bridge: b, sink: sc.Name, keepsNewest: sc.KeepsNewest}
}

// lateFor is how long after a loss informers report it that did not run: of a resource that the API
// server did not serve, or in another configuration.
const lateFor = time.Hour

// errLate: informers may start that have to report a loss.
var errLate = errors.New("other informers may start")

// send is publisher.Config.OnLoss. It returns an error while an informer can't report yet, or is
// still to start, and does not repeat what the others have reported.
func (r *lossReport) send(ctx context.Context, round int64) error {
	isNew := round != r.round
	if isNew {
		r.round, r.began, r.since = round, map[string]bool{}, time.Now()
	}
	var failed error
	for _, u := range r.bridge.informers.all() {
		isDone, ran := r.began[u.Name()]
		if isDone {
			continue
		}
		var err error
		if isNew || ran || u.From() != "" { // else it has sent nothing before the loss
			err = r.report(ctx, u)
		}
		failed, r.began[u.Name()] = errors.Join(failed, err), err == nil
	}
	if failed == nil && time.Since(r.since) < lateFor {
		return errLate
	}
	return failed
}

func (r *lossReport) report(ctx context.Context, u *informer.Informer) error {
	if !r.keepsNewest {
		if !u.Snapshots.ReportLoss(r.sink, r.round) {
			return fmt.Errorf("informer %s: %w", u.Name(), ErrStopping)
		}
		return nil
	}
	of := u.Config()
	_, err := r.bridge.SendSnapshot(ctx, informer.SnapshotRequest{
		Informer: of.Informer, Resource: of.Type.String(), Namespace: of.Namespace, Sink: r.sink,
		Round: r.round,
	})
	if errors.Is(err, informer.ErrUnknown) || errors.Is(err, ErrUnknown) { // it does not feed the sink
		return nil
	}
	if err == nil {
		r.bridge.log.Info("all objects are sent again, since the sink's destination may lack some",
			"informer", u.Name(), "sink", r.sink)
	}
	return err
}
