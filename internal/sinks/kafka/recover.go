package kafka

import (
	"context"
	"errors"
	"math"
)

// recoverProducer continues after the broker has forgotten the lane's producer, or expects another
// sequence number. If an attempt may have stored the batch, the lane reads the end of its log: a
// batch is there as a whole or not at all, and has our producer id, epoch and sequence number. Then
// the lane continues under its next epoch, whose first batch also fences delayed attempts of the
// old one.
func (l *lane) recoverProducer(
	ctx context.Context, batch *inflightBatch, attempt int, cause error,
) (outcome, error) {
	if l.unverified() {
		if result, err := l.resolveLate(ctx, batch); result != forgotten {
			return result, errors.Join(cause, err)
		}
	}
	if err := l.confirm(ctx); err != nil {
		return unreachable, errors.Join(cause, err)
	}
	found, err := int64(-1), error(nil)
	if l.unverified() {
		// resolveLate has searched the log
		l.sink.metrics.recoveries.With("missing").Inc()
	} else if found, err = l.findStored(ctx, batch); err != nil {
		return classify(err), err
	}
	// When the same batch fails a second time, a forgotten epoch is not the cause.
	if err := l.renewProducer(ctx, attempt > 0 && !batch.unknown); err != nil {
		return classify(err), err
	}
	l.sink.log.Warn("the broker had forgotten this producer; continuing as a new one",
		"lane", l.name, "err", cause,
		"batch_found", found >= 0, "producer_id", l.producer.id, "epoch", l.producer.epoch)
	if found >= 0 {
		l.next = found + int64(batch.records)
		l.publishPlace()
		return stored, nil
	}
	l.restamp(batch)
	return resend, cause
}

// renewProducer gives the lane a new identity: the next epoch of its producer id, or a new id.
func (l *lane) renewProducer(ctx context.Context, newID bool) error {
	p := producer{id: l.producer.id, epoch: l.producer.epoch + 1}
	if newID || l.producer.epoch == math.MaxInt16 {
		err := l.retry(ctx, "renew", func() (err error) {
			p.id, p.epoch, err = l.cluster.newProducer(ctx)
			return err
		})
		if err != nil {
			return err
		}
		l.resumed = nil // nobody has used this one before
	}
	l.producer, l.sequence = p, 0
	l.publishPlace()
	return nil
}

// findStored returns the offset of a batch that an unanswered attempt has stored, or -1.
func (l *lane) findStored(ctx context.Context, batch *inflightBatch) (int64, error) {
	found := int64(-1)
	from, end, err := l.searchRange(ctx)
	if err == nil && batch.unknown {
		found, err = l.findBatch(ctx, batch, from, end)
	}
	switch {
	case unreadable(err):
		l.sink.metrics.recoveries.With("unread").Inc()
		l.sink.log.Warn("can't read the partition to see whether a batch is stored; sending it "+
			"again, its events may be stored twice (with the same ids): "+
			"grant the bridge's user Read on the topic", "lane", l.name, "err", err)
		return -1, nil
	case err != nil:
		return -1, err
	case found < 0:
		l.sink.metrics.recoveries.With("missing").Inc()
	default:
		l.sink.metrics.recoveries.With("stored").Inc()
	}
	return found, nil
}

// searchRange returns the part of the log in which the batch in flight would lie. It also reports,
// once, that the log ends before records that it had acknowledged.
func (l *lane) searchRange(ctx context.Context) (from, end int64, err error) {
	start, end, err := l.bounds(ctx)
	if err != nil {
		return 0, 0, err
	}
	if end < l.next {
		l.sink.metrics.lost.Inc()
		l.sink.log.Error("the partition has lost events that it had acknowledged (an unclean "+
			"leader election, or the topic was recreated)",
			"lane", l.name, "acknowledged_up_to", l.next, "log_ends_at", end)
		// The log's new history may hold the batch below the offset where our old one ended.
		const far = 5000
		l.next = max(start, end-far)
		l.publishPlace()
	}
	return max(start, l.next), end, nil
}

// bounds returns the two ends of the lane's log.
func (l *lane) bounds(ctx context.Context) (start, end int64, err error) {
	err = l.retry(ctx, "find the tail", func() (err error) {
		if start, err = l.cluster.offset(ctx, l.topic, l.partition, earliest); err == nil {
			end, err = l.cluster.offset(ctx, l.topic, l.partition, latest)
		}
		return err
	})
	return start, end, err
}

// findBatch looks for a batch in a part of the log, and returns its offset, or -1.
func (l *lane) findBatch(
	ctx context.Context, batch *inflightBatch, from, end int64,
) (int64, error) {
	found := int64(-1)
	err := l.read(ctx, &logRange{from: from, end: end},
		batchVisitor{batch: func(b batchHead, _ []string) error {
			if found < 0 && l.isOwn(b) && b.epoch == l.producer.epoch &&
				b.sequence == batch.sequence {
				found = b.offset
			}
			return nil
		}})
	return found, err
}

// restamp makes a batch the first one of the lane's new identity.
func (l *lane) restamp(batch *inflightBatch) {
	batch.unknown, batch.sequence = false, 0
	stamp(batch.bytes, l.producer.id, l.producer.epoch, 0)
}
