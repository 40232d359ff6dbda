package kafka

import (
	"context"
	"errors"
	"math"
)

// recover goes on after the broker has forgotten the lane's producer, or remembers it otherwise than we do. If an attempt may have
// stored the batch, the lane's own part of the log tells: a batch is there as a whole or not at all, and bears our producer id, epoch and
// sequence number. Then the lane goes on under its next epoch, whose first batch also bars delayed attempts of the old one.
func (l *lane) recover(ctx context.Context, f *frozen, attempt int, cause error) (verdict, error) {
	if l.unproven {
		if outcome, err := l.late(ctx, f); outcome != forgotten {
			return outcome, errors.Join(cause, err)
		}
	}
	if err := l.confirm(ctx); err != nil {
		return away, errors.Join(cause, err)
	}
	found, err := int64(-1), error(nil)
	if l.unproven {
		l.sink.metrics.recoveries.WithLabelValues("missing").Inc() // late has looked
	} else if found, err = l.findLost(ctx, f); err != nil {
		return sort(err), err
	}
	// A second time for the same batch is no matter of a forgotten epoch.
	if err := l.renew(ctx, attempt > 0 && !f.unknown); err != nil {
		return sort(err), err
	}
	l.sink.log.Warn("the broker had forgotten this producer; going on as a new one", "lane", l.name, "err", cause,
		"batch_found", found >= 0, "producer_id", l.producer.id, "epoch", l.producer.epoch)
	if found >= 0 {
		l.next = found + int64(f.records)
		l.noted()
		return stored, nil
	}
	l.restamp(f)
	return resend, cause
}

// renew gives the lane a new identity: the next epoch of its producer id, or a new id.
func (l *lane) renew(ctx context.Context, newID bool) error {
	p := producer{id: l.producer.id, epoch: l.producer.epoch + 1}
	if newID || l.producer.epoch == math.MaxInt16 {
		err := l.until(ctx, "renew", func() (err error) {
			p.id, p.epoch, err = l.cluster.newProducer(ctx)
			return err
		})
		if err != nil {
			return err
		}
		l.unproven = false // nobody has been this one before
	}
	l.producer, l.sequence = p, 0
	l.noted()
	return nil
}

// findLost gives the offset of a batch that an unanswered attempt has stored, or -1.
func (l *lane) findLost(ctx context.Context, f *frozen) (int64, error) {
	found := int64(-1)
	from, end, err := l.tail(ctx)
	if err == nil && f.unknown {
		found, err = l.scan(ctx, f, from, end)
	}
	switch {
	case unreadable(err):
		l.sink.metrics.recoveries.WithLabelValues("unread").Inc()
		l.sink.log.Warn("can't read the partition to see whether a batch is stored; sending it again, its events may be there twice (with the same ids): "+
			"grant the bridge's user Read on the topic", "lane", l.name, "err", err)
		return -1, nil
	case err != nil:
		return -1, err
	case found < 0:
		l.sink.metrics.recoveries.WithLabelValues("missing").Inc()
	default:
		l.sink.metrics.recoveries.WithLabelValues("stored").Inc()
	}
	return found, nil
}

// tail gives the part of the log in which the frozen batch would lie. It also tells, once, when the log ends before what it had acknowledged.
func (l *lane) tail(ctx context.Context) (from, end int64, err error) {
	start, end, err := l.bounds(ctx)
	if err != nil {
		return 0, 0, err
	}
	if end < l.next {
		l.sink.metrics.lost.Inc()
		l.sink.log.Error("the partition has lost events that it had acknowledged (an unclean leader election, or the topic was created anew)",
			"lane", l.name, "acknowledged_up_to", l.next, "log_ends_at", end)
		// The log's new history may hold the batch below the place where our old one ended.
		const far = 5000
		l.next = max(start, end-far)
		l.noted()
	}
	return max(start, l.next), end, nil
}

// bounds are the two ends of the lane's log.
func (l *lane) bounds(ctx context.Context) (start, end int64, err error) {
	err = l.until(ctx, "find the tail", func() (err error) {
		if start, err = l.cluster.offset(ctx, l.topic, l.partition, earliest); err == nil {
			end, err = l.cluster.offset(ctx, l.topic, l.partition, latest)
		}
		return err
	})
	return start, end, err
}

// scan looks for a batch in a part of the log, and gives its offset, or -1.
func (l *lane) scan(ctx context.Context, f *frozen, from, end int64) (int64, error) {
	found := int64(-1)
	err := l.read(ctx, &tail{from: from, end: end}, pages{batch: func(b batchHead, _ []string) error {
		if found < 0 && l.own(b) && b.epoch == l.producer.epoch && b.sequence == f.sequence {
			found = b.offset
		}
		return nil
	}})
	return found, err
}

// restamp makes a batch the lane's first one under its new identity.
func (l *lane) restamp(f *frozen) {
	f.unknown, f.sequence = false, 0
	stamp(f.bytes, l.producer.id, l.producer.epoch, 0)
}
