package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// answer reads the answers of a call: it settles items, and requeues every lane.
func (w *worker) answer(ctx context.Context, pass ratelimit.Pass) {
	down := w.readAnswers(ctx)
	w.inform(ctx, pass, down)
	w.collect()
	w.settle()
	for _, s := range w.sent {
		w.requeueLane(s)
	}
	w.putBack()
}

// putBack returns the lanes to the queue, first those that can continue: their items wait for
// nothing.
func (w *worker) putBack() {
	w.release(w.onward)
	w.unpick(w.first, w.delayed)
	w.p.queue.Return(w.first...)
	for i, l := range w.delayed {
		l.failed = true
		w.p.metrics.counts.stalled.failed(l, w.reasons[i])
		w.p.queue.AddRateLimited(l)
	}
	w.p.queue.Done(w.delayed...)
	clear(w.reasons)
	w.onward, w.first, w.delayed, w.reasons = w.onward[:0], w.first[:0], w.delayed[:0], w.reasons[:0]
}

// unpick ends the round of lanes that are not released.
func (w *worker) unpick(first, delayed []*lane) {
	if len(first)+len(delayed) == 0 {
		return
	}
	var left takenItems
	w.p.mu.Lock()
	for _, lanes := range [][]*lane{first, delayed} {
		for _, l := range lanes {
			l.worker = nil
			w.p.sweepLocked(l, &left)
		}
	}
	w.p.mu.Unlock()
	w.p.handBack(&left)
}

// release returns the lanes that can continue, and frees the empty ones.
func (w *worker) release(lanes []*lane) {
	if len(lanes) == 0 {
		return
	}
	w.remaining, w.emptied = w.remaining[:0], w.emptied[:0]
	var left takenItems
	w.p.mu.Lock()
	for _, l := range lanes {
		l.worker = nil
		w.p.sweepLocked(l, &left)
		if l.head == nil {
			delete(w.p.lanes, l.name)
			w.emptied = append(w.emptied, l)
		} else {
			w.remaining = append(w.remaining, l)
		}
	}
	w.p.mu.Unlock()
	w.p.handBack(&left)
	w.p.queue.Add(w.remaining...)
	w.p.queue.Done(lanes...)
	for i, l := range w.emptied {
		if l.failed { // it got empty without getting on
			w.p.queue.Forget(l)
			w.p.metrics.counts.stalled.progressed(l)
		}
		*l = lane{} // nobody knows it any more: not the map, not the queue, not the limiter
		lanePool.Put(l)
		w.emptied[i] = nil
	}
}

// readAnswers applies each message's answer to its item, up to the first failure of each lane. It
// returns an error that shows that the broker can't be reached, if there was one.
func (w *worker) readAnswers(ctx context.Context) (down error) {
	at, acked := 0, 0
	for i := range w.sent {
		s := &w.sent[i]
		for _, it := range w.items[at : at+s.count] {
			if it.state != itemSending {
				continue
			}
			it.attempts++
			w.readAnswer(ctx, s, it)
			if it.state == itemStored {
				acked++
			}
		}
		at += s.count
		if s.err != nil && s.class == sinks.Reconnect {
			down = s.err
		}
	}
	w.p.published(acked)
	return down
}

func (w *worker) readAnswer(ctx context.Context, s *batchPart, it *Item) {
	err := it.Message.Err
	switch class := w.p.classify(ctx, err); {
	case s.err != nil:
		it.apply(onFail)
		if err == nil {
			w.p.cfg.Log.Error("sink acknowledged a message behind one that failed; it is sent "+
				"again, after that one", "id", it.Message.Event.ID, "lane", it.lane)
		}
	case err == nil:
		it.apply(onStore)
	case class == sinks.Refused && w.p.mayShrink(it, err):
		it.large = &sizeRefusal{len(it.Message.Event.Data), err}
		it.apply(onFail)
		s.err, s.class = err, sinks.Retry
	case class == sinks.Refused:
		w.p.reportPanic(it.Message.Event, &err)
		it.refuse(err)
	default:
		if isPanic(err) {
			w.p.panicked("a panic at the answer to an event; it is sent again", it.Message.Event, err)
		}
		if !s.gaveUp && w.giveUp(it, class, err) {
			s.gaveUp = true
			return
		}
		it.apply(onFail)
		s.err, s.class = err, class
	}
}

// mayShrink reports whether a refused item is tried in a smaller form. A sinks.Sizer knows the
// limit, and asks for that itself. With sinks.ByLane the sink may have stored what is behind it.
func (p *Publisher) mayShrink(it *Item, err error) bool {
	_, isSizer := p.cfg.Sink.(sinks.Sizer)
	return !isSizer && p.order == sinks.ByObject && errors.Is(err, sinks.ErrTooLarge) &&
		len(it.Message.Event.Data) > 0 && len(p.cfg.Oversize) > 0
}

// giveUp refuses an item whose attempts are used up, and reports whether it did.
func (w *worker) giveUp(it *Item, class sinks.Class, err error) bool {
	switch class {
	case sinks.Retry:
		if errors.Is(err, sinks.ErrNotSent) {
			return false
		}
		if why := it.fail(err, w.p.cfg.Retry); why != nil {
			w.p.failed(why)
			it.refuse(why)
			return true
		}
	case sinks.Reconnect:
		it.failingSince = time.Time{}
	default:
	}
	return false
}

// What the sink answers decides what happens (sinks.Classify):
//
//   - Retry delays the lane alone, exponentially with jitter. Other lanes continue. Where
//     Config.Retry bounds the attempts, the message is given up after the last: it is refused.
//   - Reconnect pauses the whole sink with one backoff. After it one worker tries one message; its
//     answer ends the pause or starts a longer one.
//   - Refused sends the message to the dead letters; later messages of the lane continue behind it.
//     One that is too large for a sink that knows no limit is tried in smaller forms first.
//     A dead letter that can't be stored either is tried again: nothing is dropped but where the
//     configuration says so.
//   - Stopped leaves the item as it is.

// classify is sinks.Classify, but returns Stopped only when the publisher itself is being stopped:
// a sink that gave up for another reason is tried again.
func (p *Publisher) classify(ctx context.Context, err error) sinks.Class {
	class := sinks.Classify(err)
	if class == sinks.Stopped && ctx.Err() == nil {
		return sinks.Retry
	}
	return class
}

// inform reports to the breaker whether the broker answered. A call cut short by ctx shows nothing
// about the broker.
func (w *worker) inform(ctx context.Context, pass ratelimit.Pass, down error) {
	if down == nil {
		if ctx.Err() != nil {
			w.p.breaker.GiveUp(pass)
		} else if w.p.breaker.Succeed(pass) {
			w.p.cfg.Log.Info("broker is back")
		}
		return
	}
	w.p.failed(down)
	w.p.metrics.counts.stalled.unavailable()
	if pause, tripped := w.p.breaker.Trip(pass); tripped {
		w.p.cfg.Log.Warn("broker can't be reached; the sink pauses", "err", down, "next_attempt_in",
			pause.String())
	}
}

// collect takes acknowledged items and dead letters out of the lanes. A lane that moved on starts
// over with its delays.
func (w *worker) collect() {
	w.p.mu.Lock()
	for i := range w.sent {
		before := len(w.settled)
		w.settled = w.p.settledLocked(w.sent[i].lane, w.settled)
		w.sent[i].settled = len(w.settled) > before
	}
	w.p.mu.Unlock()
	for _, s := range w.sent {
		if s.settled && s.lane.failed {
			s.lane.failed = false
			w.p.queue.Forget(s.lane)
			w.p.metrics.counts.stalled.progressed(s.lane)
		}
	}
}

// settle calls the settlers, each once for all of its items, and then frees their capacity. It
// comes before the lanes are released: settlers see the items of a lane in their order.
func (w *worker) settle() {
	w.same = w.p.settle(w.settled, w.same)
	w.settled = w.settled[:0]
}

// requeueLane decides where a lane goes after its answers.
func (w *worker) requeueLane(s batchPart) {
	switch {
	case s.err == nil:
		if w.headRefused(s.lane) {
			w.refused = append(w.refused, s.lane)
		} else {
			w.onward = append(w.onward, s.lane)
		}
	case s.class == sinks.Reconnect, s.class == sinks.Stopped:
		w.p.countRetries(s.class, s.err)
		w.first = append(w.first, s.lane)
	case w.headRefused(s.lane): // the failure is of an item behind it
		w.p.countRetries(s.class, s.err)
		w.refused = append(w.refused, s.lane)
	default:
		w.p.countRetries(s.class, s.err)
		w.delay(s.lane, s.err)
	}
}

// delay lets a lane wait before its next attempt.
func (w *worker) delay(l *lane, why error) {
	w.delayed, w.reasons = append(w.delayed, l), append(w.reasons, why)
}

func (w *worker) headRefused(l *lane) bool {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return l.head != nil && l.head.state == itemRefused && w.p.detachmentOfLocked(l.head) == nil
}

// deadLetterHeads sends the refused heads of lanes to the dead letters. Everything else of the
// round is settled and returned by then, so a refused item delays its own lane only.
func (w *worker) deadLetterHeads(ctx context.Context, pass ratelimit.Pass) {
	if len(w.refused) == 0 {
		return
	}
	var down error
	for _, l := range w.refused {
		if down != nil || ctx.Err() != nil {
			w.first = append(w.first, l)
			continue
		}
		switch class, err := w.deadLetterLane(ctx, l); {
		case err == nil:
			w.onward = append(w.onward, l)
		case class == sinks.Reconnect:
			down = err
			w.p.countRetries(class, err)
			w.first = append(w.first, l)
		case class == sinks.Stopped:
			w.first = append(w.first, l)
		default:
			w.p.countRetries(class, err)
			w.delay(l, err)
		}
	}
	w.inform(ctx, pass, down)
	w.putBack()
}

// deadLetterLane sends a lane's items to the dead letters until the head is not refused.
func (w *worker) deadLetterLane(ctx context.Context, l *lane) (sinks.Class, error) {
	for w.headRefused(l) {
		it := l.head // not changed by others while there is one
		if class, err := w.deadLetterItem(ctx, it); err != nil {
			return class, err
		}
		w.sent = append(w.sent[:0], batchPart{lane: l})
		w.collect() // with what was acknowledged behind it
		w.settle()
	}
	return 0, nil
}

// deadLetter calls the sink, while the gate is open.
func (w *worker) deadLetter(ctx context.Context, e *event.Event, it *Item) error {
	if err := w.p.gateError(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.p.cfg.PublishTimeout)
	defer cancel()
	err := w.tryDeadLetter(ctx, e, it)
	if isPanic(err) {
		return fmt.Errorf("%w: %w", sinks.ErrNoDeadLetter, err) // it would panic again
	}
	if err != nil {
		return err
	}
	return w.p.gateError()
}

func (w *worker) tryDeadLetter(ctx context.Context, e *event.Event, it *Item) (err error) {
	defer sinks.Recover(&err)
	if sign := w.p.cfg.SignLetter; sign != nil {
		signed := *e
		signed.Extensions = append(slices.Clone(e.Extensions),
			event.Attribute{Name: "deadlettersignature", Value: sign(e)})
		e = &signed
	}
	return w.p.cfg.Sink.DeadLetter(ctx, e, it.refused, it.attempts)
}

// deadLetterItem sends one item to the dead letters. It returns nil when the item is done: it is a
// dead letter, or kept elsewhere, or lost since the configuration names no place. A place that
// refuses it is tried again until somebody has repaired that, or DeadLetterWait is over: a dead
// letter is the last trace of a change.
func (w *worker) deadLetterItem(ctx context.Context, it *Item) (sinks.Class, error) {
	if it.Return {
		it.apply(onReturn)
		return 0, nil
	}
	e := it.event()
	log := w.p.cfg.Log.With("id", e.ID, "subject", e.Subject, "reason", it.refused, "size",
		len(e.Data), "attempts", it.attempts)
	if it.Hold == nil {
		it.Hold = w.p.holds.assign(1)
	}
	err := w.deadLetter(ctx, e, it)
	class := w.p.classify(ctx, err)
	switch {
	case err == nil:
		w.p.warnings.deadLettered.Warn(log, "message was refused; it is in the dead letters")
		w.p.countDeadLetter(outcomeSent)
		it.apply(onDeadLetter)
	case errors.Is(err, sinks.ErrNoDeadLetter):
		return w.keepOrLose(it, err, log)
	case class == sinks.Reconnect, class == sinks.Stopped:
		it.failingSince = time.Time{} // the time counts while the broker answers
		return class, err
	default:
		return w.pendingDeadLetter(it, class, err, log)
	}
	return 0, nil
}

// keepOrLose keeps an item that can't be a dead letter. The item is lost only where nothing keeps
// such items, or there is no room for more. A keeper that fails (its disk is full, or it returns an
// error) is tried again.
func (w *worker) keepOrLose(it *Item, why error, log *slog.Logger) (sinks.Class, error) {
	err := w.keepItem(it, why)
	if err == nil {
		w.p.warnings.kept.Log(log, slog.LevelError,
			"message was refused; it is kept in the state directory, since no place for dead "+
				"letters is configured")
		return 0, nil
	}
	log = log.With("err", err)
	if !errors.Is(err, errNoKeeper) && !errors.Is(err, ErrNoRoom) {
		w.p.warnings.pending.Warn(log,
			"message was refused, has no place in the dead letters, and can't be kept in the state "+
				"directory now; the object waits until it can")
		return sinks.Retry, err
	}
	w.p.warnings.lost.Log(log, slog.LevelError,
		"message was refused and is lost; configure deadLetterSubject or deadLetterTopic "+
			"to keep such messages")
	w.p.countDeadLetter(outcomeDropped)
	it.apply(onLose)
	return 0, nil
}

// pendingDeadLetter decides about an item whose place of dead letters does not take it, while its
// broker answers.
func (w *worker) pendingDeadLetter(
	it *Item, class sinks.Class, why error, log *slog.Logger,
) (sinks.Class, error) {
	if it.failingSince.IsZero() {
		it.failingSince = time.Now()
	}
	log = log.With("err", why)
	if w.p.cfg.DeadLetterWait > 0 && time.Since(it.failingSince) >= w.p.cfg.DeadLetterWait {
		err := w.keepItem(it, why)
		if err == nil {
			w.p.warnings.kept.Log(log, slog.LevelError, "message was refused, and for too long "+
				"its dead letter too; it is kept in the state directory, and the object's next "+
				"event is sent")
			return 0, nil
		}
		log = log.With("keep_err", err)
	}
	if class == sinks.Refused {
		w.p.metrics.deadLetters[outcomeRefused].Inc()
		class = sinks.Retry
	}
	w.p.warnings.pending.Warn(log,
		"message was refused, and its dead letter too; the object waits until the dead-letter "+
			"destination takes it")
	return class, why
}

// ErrNoRoom is returned by Config.Keep when its own bound is reached, not for a fault that may
// pass.
var ErrNoRoom = errors.New("no more is kept")

// errNoKeeper reports that nothing keeps an event that can't be a dead letter.
var errNoKeeper = errors.New("nothing is configured to keep it")

func (w *worker) tryKeep(it *Item, why error) (err error) {
	defer sinks.Recover(&err)
	return w.p.cfg.Keep(it.event(), it.refused, why, it.attempts)
}

// keepItem keeps an item elsewhere than with the broker.
func (w *worker) keepItem(it *Item, why error) error {
	if w.p.cfg.Keep == nil {
		return errNoKeeper
	}
	if err := w.tryKeep(it, why); isPanic(err) {
		return fmt.Errorf("%w: %w", errNoKeeper, err)
	} else if err != nil {
		return err
	}
	it.apply(onKeep)
	w.p.countDeadLetter(outcomeKept)
	return nil
}
