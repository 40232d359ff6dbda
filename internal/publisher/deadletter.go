package publisher

import (
	"context"
	"errors"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// buryRefused sends the refused heads of lanes to the dead letters. Everything else of the round is settled and put
// back by then, so poison holds up its own lane only.
func (w *worker) buryRefused(ctx context.Context, pass pass) {
	if len(w.bury) == 0 {
		return
	}
	var down error
	for _, l := range w.bury {
		if down != nil || ctx.Err() != nil {
			w.first = append(w.first, l)
			continue
		}
		switch class, err := w.buryLane(ctx, l); {
		case err == nil:
			w.onward = append(w.onward, l)
		case class == sinks.Reconnect:
			down = err
			w.countRetries(class, err)
			w.first = append(w.first, l)
		case class == sinks.Stopped:
			w.first = append(w.first, l)
		default:
			w.countRetries(class, err)
			w.delayed = append(w.delayed, l)
		}
	}
	w.tell(ctx, pass, down)
	w.putBack()
}

// buryLane buries a lane's items until the head is not refused.
func (w *worker) buryLane(ctx context.Context, l *lane) (sinks.Class, error) {
	for w.headRefused(l) {
		it := l.head // not changed by others while there is one
		if class, err := w.buryItem(ctx, it); err != nil {
			return class, err
		}
		it.acked = true
		w.sent = append(w.sent[:0], sent{lane: l})
		w.collect() // with what was acknowledged behind it
		w.settle()
	}
	return 0, nil
}

// deadLetter calls the sink, while the gate is open.
func (w *worker) deadLetter(ctx context.Context, e *event.Event, it *Item) error {
	if err := w.shut(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if err := w.sink.DeadLetter(ctx, e, it.refused, it.attempts); err != nil {
		return err
	}
	return w.shut()
}

// buryItem sends one item to the dead letters. It returns nil when the item is done with: it is there, or the configuration names no
// place. A place that refuses it is asked again until somebody has put that right: a dead letter is the last trace of a change.
func (w *worker) buryItem(ctx context.Context, it *Item) (sinks.Class, error) {
	e := it.event()
	log := w.log.With("id", e.ID, "subject", e.Subject, "reason", it.refused, "size", len(e.Data), "attempts", it.attempts)
	if it.Mark == nil {
		it.Mark = w.marks.hold(1)
	}
	err := w.deadLetter(ctx, e, it)
	switch class := w.classify(ctx, err); {
	case err == nil:
		log.Warn("message was refused; it is in the dead letters")
		w.buried(outcomeSent)
	case errors.Is(err, sinks.ErrNoDeadLetter):
		log.Error("message was refused and is lost; configure deadLetter to keep such messages")
		w.buried(outcomeDropped)
		it.lost = true
	case class == sinks.Refused:
		w.metrics.deadLetters[outcomeRefused].Inc()
		w.warnings.dead.warn(log, "message was refused, and its dead letter too; the object waits until the dead-letter destination takes it", "err", err)
		return sinks.Retry, err
	default:
		return class, err
	}
	return 0, nil
}
