package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// worker takes ready lanes, publishes the items at their heads, and returns the lanes. Its slices
// are used again in every round.
type worker struct {
	p *Publisher

	held  []*lane          // the lanes it has
	sent  []batchPart      // what of them is in the batch
	items []*Item          // the batch, lane by lane
	batch []*sinks.Message // the messages of items
	bytes int              // payload of the batch

	// Where the lanes go after the round.
	onward  []*lane // have more to send, or are empty
	delayed []*lane // failed
	reasons []error // why, for each of delayed
	first   []*lane // were not tried, or the broker is unavailable
	refused []*lane // have a refused item at their head

	cancel context.CancelCauseFunc // guarded by Publisher.mu: ends its calls of the sink

	settled   []*Item
	same      []*Item // those of settled with one settler
	remaining []*lane // scratch of release
	emptied   []*lane // scratch of release
}

// batchPart is the items of one lane in the batch, with their answer.
type batchPart struct {
	lane    *lane
	count   int
	err     error       // the first that is neither nil nor Refused
	class   sinks.Class // of err
	settled bool        // at least one item left the lane
	gaveUp  bool        // an item before, so the sink may have stored nothing behind it
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.runUntilCancelled(ctx)
	}
}

// runUntilCancelled works until ctx ends, or until a call was cancelled for a Detach.
func (w *worker) runUntilCancelled(ctx context.Context) {
	calls, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.p.mu.Lock()
	w.cancel = cancel
	w.p.mu.Unlock()
	for calls.Err() == nil {
		held, err := w.p.queue.GetBatch(ctx, w.held[:0], w.batchLanes())
		if err != nil {
			return
		}
		w.held = held
		pass, err := w.p.breaker.Enter(ctx)
		if err != nil {
			return
		}
		w.round(calls, pass)
	}
}

// batchLanes returns how many lanes fill a batch: one where a call holds one lane, else as many as
// fit by the average size of an item.
func (w *worker) batchLanes() int {
	if w.p.order == sinks.ByLane {
		return 1
	}
	items, bytes := w.p.capacity.load()
	average := max(1, bytes/max(items, 1)-overhead)
	return min(w.p.limits.Messages, max(1, w.p.limits.Bytes/average))
}

// round makes one call of the sink with the worker's lanes. When ctx ends, items without an answer
// stay in their lanes.
func (w *worker) round(ctx context.Context, pass ratelimit.Pass) {
	w.pick(pass.Probe)
	w.p.queue.Return(w.first...)
	w.first = w.first[:0]
	if len(w.items)+len(w.refused) == 0 { // all that was there was taken back
		w.p.breaker.GiveUp(pass)
		w.putBack()
		return
	}
	down := w.fit(ctx)
	w.compose()
	switch {
	case len(w.batch) > 0 && !w.awaitRate(ctx):
		w.p.breaker.GiveUp(pass)
		for _, s := range w.sent {
			w.first = append(w.first, s.lane)
		}
		w.putBack()
	case len(w.items) > 0:
		w.publish(ctx)
		w.answer(ctx, pass)
	case len(w.refused) == 0: // nothing fits, or can be made to just now
		w.inform(ctx, pass, down)
		w.putBack()
	}
	w.deadLetterHeads(ctx, pass)
}

// pick fills the batch from the heads of the lanes, within the limits. Lanes that don't fit come
// first in the next round, of any worker.
func (w *worker) pick(probe bool) {
	w.sent, w.items, w.batch, w.bytes = w.sent[:0], w.items[:0], w.batch[:0], 0
	w.onward, w.delayed, w.first, w.refused = w.onward[:0], w.delayed[:0], w.first[:0], w.refused[:0]
	w.reasons = w.reasons[:0]
	limit := w.p.limits.Messages
	if probe {
		limit = 1
	}
	w.p.mu.Lock()
	for i, l := range w.held {
		if l.head == nil {
			w.onward = append(w.onward, l)
			continue
		}
		if len(w.items)+len(w.refused) >= limit || !w.fill(l, limit) {
			w.first = append(w.first, w.held[i:]...)
			break
		}
	}
	w.p.mu.Unlock()
}

// compose makes the batch of the items, without those that are settled already.
func (w *worker) compose() {
	first := 0
	w.bytes = 0
	for _, it := range w.items {
		it.Message.Err = nil
		if it.state.settled() {
			continue
		}
		w.batch = append(w.batch, &it.Message)
		w.bytes += len(it.Message.Event.Data)
		if it.Hold == nil {
			first++
		}
	}
	hold := w.p.holds.assign(first)
	for _, it := range w.items {
		if it.Hold == nil && !it.state.settled() {
			it.Hold = hold
		}
	}
}

// awaitRate waits until the rate limit lets the batch out; false when ctx ended.
func (w *worker) awaitRate(ctx context.Context) bool {
	waited, err := w.p.bucket.Wait(ctx, len(w.batch), w.bytes)
	w.p.metrics.rateLimited.Add(waited.Seconds())
	return err == nil
}

// fill takes items of a lane into the batch: the first one, or as many as fit where the sink keeps
// their order. A lane with a refused item at its head goes to w.refused instead. It reports whether
// there was room for at least one item.
func (w *worker) fill(l *lane, limit int) bool {
	if l.head.state == itemRefused {
		l.worker = w
		w.refused = append(w.refused, l)
		return true
	}
	if w.p.order == sinks.ByObject {
		limit = min(limit, len(w.items)+1)
	}
	count := 0
	for it := l.head; it != nil && it.state != itemRefused && len(w.items) < limit; it = it.next {
		if len(w.items) > 0 && w.bytes+it.payload() > w.p.limits.Bytes {
			break
		}
		w.items = append(w.items, it)
		w.bytes += it.payload()
		count++
	}
	if count > 0 {
		l.worker = w
		w.sent = append(w.sent, batchPart{lane: l, count: count})
	}
	return count > 0
}

// publish calls the sink, unless everything in the batch is settled. The call has a deadline: a
// call that hangs must not keep its lanes forever.
func (w *worker) publish(ctx context.Context) {
	if len(w.batch) == 0 {
		return
	}
	for _, it := range w.items {
		if !it.state.settled() {
			it.apply(onSend)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.p.cfg.PublishTimeout)
	defer cancel()
	done := w.p.metrics.call(len(w.batch))
	w.p.metrics.counts.inFlight.Add(int64(len(w.batch)))
	if w.p.checkGate(w.batch) {
		w.p.cfg.Sink.Publish(ctx, w.batch)
		w.p.checkGate(w.batch)
	}
	w.p.metrics.counts.inFlight.Add(-int64(len(w.batch)))
	done()
}

// fit makes the messages of the batch small enough for the broker. It takes out the items that stay
// too large, with all items behind them in their lanes. down is an error that shows that the broker
// can't be reached.
func (w *worker) fit(ctx context.Context) (down error) {
	if _, ok := w.p.cfg.Sink.(sinks.Sizer); !ok && w.p.cfg.MaxSize == 0 &&
		!slices.ContainsFunc(w.items, func(it *Item) bool { return it.large != nil }) {
		return nil
	}
	at, items, lanes := 0, w.items[:0], w.sent[:0]
	for _, s := range w.sent {
		mine := w.items[at : at+s.count]
		at += s.count
		n, err := w.fitLane(ctx, mine)
		items = append(items, mine[:n]...)
		switch class := w.p.classify(ctx, err); {
		case n > 0: // an error comes again when its item is at the head
			s.count = n
			lanes = append(lanes, s)
		case err == nil:
			w.refused = append(w.refused, s.lane)
		case class == sinks.Stopped:
			w.first = append(w.first, s.lane)
		// the place for payloads may be unavailable while messages are taken: the lane waits, not
		// the sink
		default:
			if class == sinks.Reconnect {
				down = err
			}
			w.p.countRetries(class, err)
			if w.giveUp(mine[0], class, err) {
				w.refused = append(w.refused, s.lane)
			} else {
				w.delay(s.lane, err)
			}
		}
	}
	w.items, w.sent = items, lanes
	return down
}

// fitLane returns how many of a lane's items, from the first on, fit. The next one is refused, or
// err says why that is not known yet.
func (w *worker) fitLane(ctx context.Context, items []*Item) (n int, err error) {
	for n, it := range items {
		if err := w.fitItem(ctx, it); err != nil || it.refused != nil {
			return n, err
		}
	}
	return len(items), nil
}

// fitItem leaves an item that fits as it is, replaces its event by one that does, or refuses it.
func (w *worker) fitItem(ctx context.Context, it *Item) error {
	if it.state.settled() {
		return nil
	}
	tooLarge := w.fits(it, it.Message.Event)
	if tooLarge == nil {
		return nil
	}
	if isPanic(tooLarge) {
		it.refuse(tooLarge)
		return nil
	}
	full := it.event()
	for _, way := range w.p.cfg.Oversize {
		small, err := w.smaller(ctx, way, it)
		if err != nil {
			return err
		}
		if small == nil {
			continue
		}
		if it.full == nil {
			w.p.metrics.oversized[way].Inc()
			w.p.warnings.oversize.Warn(w.p.cfg.Log,
				"event is too large for the broker and is sent in a smaller form", "id", full.ID, "subject",
				full.Subject,
				"form", string(way), "size", len(full.Data), "reason", tooLarge)
		}
		it.full, it.Message.Event = full, small
		return nil
	}
	it.refuse(tooLarge)
	return nil
}

// fits reports why an item can't be sent in a form.
func (w *worker) fits(it *Item, e *event.Event) (err error) {
	defer w.p.reportPanic(e, &err)
	defer sinks.Recover(&err)
	if bound := w.p.cfg.MaxSize; bound > 0 && len(e.Data) > bound {
		return &sinks.Error{Class: sinks.Refused, Err: fmt.Errorf(
			"%w: its payload has %d bytes, and the sink's maxSize is %d", sinks.ErrTooLarge, len(e.Data), bound)}
	}
	if it.large != nil && len(e.Data) >= it.large.size {
		return it.large.why
	}
	if sizer, ok := w.p.cfg.Sink.(sinks.Sizer); ok {
		return sizer.Fits(e)
	}
	return nil
}

// smaller returns an event in one of the smaller forms, nil when none fits.
func (w *worker) smaller(ctx context.Context, way Oversize, it *Item) (*event.Event, error) {
	full := it.event()
	switch way {
	case Trim:
		return w.fitting(it, w.makeSmaller(event.Trimmed, full)), nil
	case Claim:
		return w.claim(ctx, it)
	case Reference:
		if small := w.fitting(it, w.makeSmaller(event.Reference, full)); small != nil {
			return small, nil
		}
		return w.fitting(it, event.BareReference(full)), nil
	}
	return nil, nil
}

// makeSmaller makes a smaller form of an event, nil after a panic.
func (w *worker) makeSmaller(
	form func(*event.Event) *event.Event, full *event.Event,
) (small *event.Event) {
	defer func() {
		if recovered := recover(); recovered != nil {
			small = nil
			w.p.panicked("a smaller form of an event could not be made; another one is tried", full,
				event.NewPanicError(recovered))
		}
	}()
	return form(full)
}

// fitting returns the event, nil when it is too large.
func (w *worker) fitting(it *Item, small *event.Event) *event.Event {
	if small == nil || w.fits(it, small) != nil {
		return nil
	}
	return small
}

func (w *worker) claim(ctx context.Context, it *Item) (*event.Event, error) {
	full := it.event()
	if w.fitting(it, event.Claimed(full, "")) == nil {
		return nil, nil // it is not the payload that is too large
	}
	ctx, cancel := context.WithTimeout(ctx, w.p.cfg.PublishTimeout)
	defer cancel()
	dataref, err := w.p.cfg.Sink.(sinks.ClaimChecker).Claim(ctx, full)
	switch class := w.p.classify(ctx, err); {
	case err == nil:
		return w.fitting(it, event.Claimed(full, dataref)), nil
	case errors.Is(err, sinks.ErrNoClaims):
		return nil, nil
	case class == sinks.Refused:
		w.p.warnings.claim.Warn(w.p.cfg.Log, "payload can't be kept elsewhere", "id", full.ID, "size",
			len(full.Data), "err", err)
		return nil, nil
	default:
		if isPanic(err) {
			w.p.panicked("a panic where a payload is kept elsewhere; it is tried again", full, err)
		}
		return nil, fmt.Errorf("keep the payload of %s: %w", full.ID, err)
	}
}
