package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// fit makes the messages of the batch small enough for the broker, and takes those out that it
// can't, with what is behind them in their lanes. down is an error that says that the broker can't
// be reached.
func (w *worker) fit(ctx context.Context) (down error) {
	if _, ok := w.p.cfg.Sink.(sinks.Sizer); !ok {
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
			w.delayed = append(w.delayed, s.lane)
		}
	}
	w.items, w.sent = items, lanes
	return down
}

// fitLane says how many of a lane's items, from the first on, fit. The one behind them is refused,
// or err says why that is not known yet.
func (w *worker) fitLane(ctx context.Context, items []*Item) (n int, err error) {
	for n, it := range items {
		if err := w.fitItem(ctx, it); err != nil || it.refused != nil {
			return n, err
		}
	}
	return len(items), nil
}

// fitItem leaves an item that fits as it is, replaces its event by one that does, or marks it as
// refused.
func (w *worker) fitItem(ctx context.Context, it *Item) error {
	if it.state.settled() {
		return nil
	}
	tooLarge := w.fits(it.Message.Event)
	if tooLarge == nil {
		return nil
	}
	if isPanic(tooLarge) {
		it.refuse(tooLarge)
		return nil
	}
	full := it.event()
	for _, way := range w.p.cfg.Oversize {
		small, err := w.smaller(ctx, way, full)
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

func (w *worker) fits(e *event.Event) (err error) {
	defer w.p.reportPanic(e, &err)
	defer sinks.Recover(&err)
	return w.p.cfg.Sink.(sinks.Sizer).Fits(e)
}

// smaller is an event in one of the smaller forms, nil when it has none that fits.
func (w *worker) smaller(
	ctx context.Context, way Oversize, full *event.Event,
) (*event.Event, error) {
	switch way {
	case Trim:
		return w.fitting(w.made(event.Trimmed, full)), nil
	case Claim:
		return w.claim(ctx, full)
	case Reference:
		if small := w.fitting(w.made(event.Reference, full)); small != nil {
			return small, nil
		}
		return w.fitting(event.BareReference(full)), nil
	}
	return nil, nil
}

// made is a smaller form of an event, nil after a panic.
func (w *worker) made(
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

// fitting is the event, nil when it is too large.
func (w *worker) fitting(small *event.Event) *event.Event {
	if small == nil || w.fits(small) != nil {
		return nil
	}
	return small
}

func (w *worker) claim(ctx context.Context, full *event.Event) (*event.Event, error) {
	if w.fitting(event.Claimed(full, "")) == nil {
		return nil, nil // it is not the payload that is too large
	}
	ctx, cancel := context.WithTimeout(ctx, w.p.cfg.PublishTimeout)
	defer cancel()
	dataref, err := w.p.cfg.Sink.(sinks.ClaimChecker).Claim(ctx, full)
	switch class := w.p.classify(ctx, err); {
	case err == nil:
		return w.fitting(event.Claimed(full, dataref)), nil
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
