package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// deadLetterHeads sends the refused heads of lanes to the dead letters. Everything else of the
// round is settled and put back by then, so poison holds up its own lane only.
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
			w.delayed = append(w.delayed, l)
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
		w.sent = append(w.sent[:0], sent{lane: l})
		w.collect() // with what was acknowledged behind it
		w.settle()
	}
	return 0, nil
}

// deadLetter calls the sink, while the gate is open.
func (w *worker) deadLetter(ctx context.Context, e *event.Event, it *Item) error {
	if err := w.p.shut(); err != nil {
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
	return w.p.shut()
}

func (w *worker) tryDeadLetter(ctx context.Context, e *event.Event, it *Item) (err error) {
	defer sinks.Recover(&err)
	return w.p.cfg.Sink.DeadLetter(ctx, e, it.refused, it.attempts)
}

// deadLetterItem sends one item to the dead letters. It returns nil when the item is done with: it
// is there, or kept elsewhere, or can be neither since the configuration names no place. A place
// that refuses it is asked again until somebody has put that right, or its time is over: a dead
// letter is the last trace of a change.
func (w *worker) deadLetterItem(ctx context.Context, it *Item) (sinks.Class, error) {
	if it.Return {
		it.on(onReturn)
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
		it.on(onDeadLetter)
	case errors.Is(err, sinks.ErrNoDeadLetter):
		return w.keepOrLose(it, err, log)
	case class == sinks.Reconnect, class == sinks.Stopped:
		it.pendingSince = time.Time{} // the time counts while the broker answers
		return class, err
	default:
		return w.pendingDeadLetter(it, class, err, log)
	}
	return 0, nil
}

// keepOrLose decides about an item that has no place in the dead letters. It is lost only where
// nothing keeps such items, or no more of them; a keeper that fails (its disk is full, or gives an
// error) is asked again.
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
	it.on(onLose)
	return 0, nil
}

// pendingDeadLetter decides about an item whose place in the dead letters does not take it, while
// its broker answers.
func (w *worker) pendingDeadLetter(
	it *Item, class sinks.Class, why error, log *slog.Logger,
) (sinks.Class, error) {
	if it.pendingSince.IsZero() {
		it.pendingSince = time.Now()
	}
	log = log.With("err", why)
	if w.p.cfg.DeadLetterWait > 0 && time.Since(it.pendingSince) >= w.p.cfg.DeadLetterWait {
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

// ErrNoRoom is given by Config.Keep when it keeps no more: not for a fault that may pass, but by
// its own bound.
var ErrNoRoom = errors.New("no more is kept")

// errNoKeeper says that nothing keeps what has no place in the dead letters.
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
	it.on(onKeep)
	w.p.countDeadLetter(outcomeKept)
	return nil
}
