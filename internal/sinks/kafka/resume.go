package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// How a lane resumes the producer of an earlier process. A process that dies leaves at most one
// unanswered batch per lane. The broker may store that batch at any later time: it lies in a queue
// there, or is stored and not yet visible, because its replicas lag. ReadBack can't see it then. So
// the next process resumes with the dead one's producer id, and with the sequence number after its
// last visible batch. The broker accepts one batch for that number. Either that is the late one:
// then it is found before any of its messages is sent again. Or it is ours: then the late one is
// never accepted. A process that ends before it has sent anything to a lane leaves the next one the
// saved offset that it found.
//
// The broker compares batches by producer, sequence number and number of records, not by content.
// So it acknowledges ours when it has a late one of as many records. An acknowledgement therefore
// counts only when our batch was read at the offset that it names. Not seeing the late one proves
// nothing: retention may have deleted it, the right to read may be gone, or a deposed leader was
// asked.

// lateLimit is how long a late batch may stay invisible: until a replica that does not follow is
// removed from the in-sync set (replica.lag.time.max.ms, 30 s).
const lateLimit = 90 * time.Second

var (
	errNotFound = errors.New("an acknowledged batch can't be found in the log: it is sent again, " +
		"and may be stored twice (with the same ids)")
	errOtherProcess = errors.New("a batch of another process lies in the place of this one")
)

// resumption is the state of an unverified lane: it resumes an earlier process's producer, and has
// not yet seen a batch of its own in the log. How far a range was read is kept for the next call.
type resumption struct {
	began    time.Time
	expected logRange // where the lane's first batch should lie, while that is read
	late     logRange // where late batches are looked for
}

// rangeAt returns the range in which a batch at this offset lies.
func (r *resumption) rangeAt(offset int64) *logRange {
	if r.expected.end != offset+1 {
		r.expected = logRange{from: offset, end: offset + 1}
	}
	return &r.expected
}

// lateRange returns the range between the offsets, without what was read of it before.
func (r *resumption) lateRange(from, end int64) *logRange {
	r.late.from, r.late.end = max(r.late.from, from), end
	return &r.late
}

func (l *lane) unverified() bool { return l.resumed != nil }

// resume makes the lane continue at the saved offset of an earlier process, if there is one.
func (l *lane) resume() bool {
	h := l.sink.readBack.resumeAt(l.topic, l.partition)
	if h.producer < 0 {
		return false
	}
	l.producer, l.sequence, l.next = producer{h.producer, h.epoch}, h.sequence, h.offset
	l.started, l.resumed = true, &resumption{began: time.Now(), late: logRange{from: l.next}}
	if l.sink.config.View { // what was read back may be of others
		l.sink.view.rows.note(l, offsets{l.sink.readBack.savedAt(l.topic, l.partition).offset, l.next})
	}
	l.publishSaved()
	return true
}

// verify decides about the acknowledgement of an unverified lane's batch by what lies at the offset
// that it names: the batch itself; a late one in its place; or nothing that could be read.
func (l *lane) verify(ctx context.Context, batch *inflightBatch, offset int64) (outcome, error) {
	b, ids, err := l.batchAt(ctx, offset)
	switch {
	case errors.Is(err, errNotFound):
		return l.resendAsNew(ctx, batch, err)
	case unreadable(err):
		return l.resendAsNew(ctx, batch, fmt.Errorf("%w: %w", errNotFound, err))
	case err != nil:
		return classify(err), err
	case l.sameBatch(batch, b, ids):
		l.resumed = nil
		return stored, nil
	case b.producer == l.producer.id && b.epoch >= l.producer.epoch:
		return l.yieldTo(ctx, b, ids)
	default:
		return l.resendAsNew(ctx, batch, errNotFound)
	}
}

// sameBatch reports whether a batch of the log is the one in flight.
func (l *lane) sameBatch(batch *inflightBatch, b batchHead, ids []string) bool {
	return b.producer == l.producer.id && b.epoch == l.producer.epoch &&
		b.sequence == batch.sequence && slices.Equal(ids, batch.ids)
}

// isOwn reports whether a batch has the lane's producer id: it is its own, or the earlier
// process's.
func (l *lane) isOwn(b batchHead) bool { return b.producer == l.producer.id }

// batchAt reads the batch that begins at an offset. It is errNotFound when there is none.
func (l *lane) batchAt(
	ctx context.Context, offset int64,
) (found batchHead, ids []string, err error) {
	if offset < 0 {
		return batchHead{}, nil, errNotFound
	}
	expected, none := l.resumed.rangeAt(offset), true
	err = l.read(ctx, expected, batchVisitor{wantIDs: l.isOwn, batch: func(b batchHead,
		its []string,
	) error {
		if b.offset == offset {
			found, ids, none = b, its, false
		}
		return nil
	}})
	if err == nil {
		*expected = logRange{}
		if none {
			err = errNotFound
		}
	}
	return found, ids, err
}

// resendAsNew sends a batch again that may be stored, as the first one of an unused producer id.
func (l *lane) resendAsNew(ctx context.Context, batch *inflightBatch, cause error) (outcome, error) {
	if err := l.confirm(ctx); err != nil {
		return unreachable, errors.Join(cause, err)
	}
	if err := l.renewProducer(ctx, true); err != nil {
		return classify(err), err
	}
	l.sink.metrics.recoveries.With("unread").Inc()
	l.sink.log.Warn("can't see whether the first batch since the start is stored, or an earlier "+
		"process's in its place; sending it again, its events may be stored twice "+
		"(with the same ids)", "lane", l.name, "err", cause)
	l.restamp(batch)
	return resend, cause
}

// yieldTo puts a late batch before the one in flight, which was not stored.
func (l *lane) yieldTo(ctx context.Context, b batchHead, ids []string) (outcome, error) {
	if err := l.confirm(ctx); err != nil {
		return unreachable, errors.Join(errOtherProcess, err)
	}
	l.resumeBehind(b, ids)
	return overtaken, nil
}

// resolveLate handles the answer that the sequence number of an unverified lane's batch is not the
// next one: a late batch has it, which may not be visible yet. It returns forgotten when that is
// not the reason.
func (l *lane) resolveLate(ctx context.Context, batch *inflightBatch) (outcome, error) {
	result, err := l.findLate(ctx, batch)
	switch {
	case result != forgotten:
		return result, err
	case err != nil && !unreadable(err):
		return classify(err), err
	case err == nil && time.Since(l.resumed.began) < lateLimit:
		return resend, nil
	default:
		return forgotten, nil
	}
}

// findLate looks behind the offset where the lane began for batches of its producer that are not
// its own, and resumes behind them: overtaken. It returns stored when the batch in flight is there,
// forgotten when there is neither. What it has read it does not read again.
func (l *lane) findLate(ctx context.Context, batch *inflightBatch) (outcome, error) {
	_, end, err := l.bounds(ctx)
	if err != nil {
		return forgotten, err
	}
	late, result := l.resumed.lateRange(l.next, end), forgotten
	err = l.read(ctx, late, batchVisitor{wantIDs: l.isOwn, batch: func(b batchHead,
		ids []string,
	) (err error) {
		switch {
		case !l.isOwn(b) || b.epoch < l.producer.epoch || b.offset < l.next:
		case l.sameBatch(batch, b, ids):
			l.resumed, result = nil, stored
			l.advance(batch, b.offset)
		default:
			result, err = l.yieldTo(ctx, b, ids)
		}
		return err
	}})
	return result, err
}

// resumeBehind puts the lane behind a late batch. The batch's ids become part of the checkpoint
// before the lane's saved offset moves behind them.
func (l *lane) resumeBehind(b batchHead, ids []string) {
	for _, id := range ids {
		l.sink.readBack.found(id)
	}
	l.storedIDs.insert(ids...)
	l.producer.epoch, l.sequence = b.epoch, sequenceAfter(b.sequence, b.records)
	l.next = b.offset + int64(b.records)
	l.publishSaved()
	l.sink.metrics.recoveries.With("late").Inc()
	l.sink.log.Info("found a batch that an earlier process had sent, and that was stored after "+
		"the start; it is not sent again",
		"lane", l.name, "messages", len(ids))
}

// confirm asks whether this process may still publish. If it may not, its successor uses its
// producers and sequence numbers, and the broker has not forgotten anything.
func (l *lane) confirm(ctx context.Context) error {
	if confirm := l.sink.config.Confirm; confirm != nil {
		return confirm(ctx)
	}
	return nil
}

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
		l.publishSaved()
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
	l.publishSaved()
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
		l.reportLost(end)
		// The log's new history may hold the batch below the offset where our old one ended.
		const far = 5000
		l.next = max(start, end-far)
		l.publishSaved()
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
func (l *lane) findBatch(ctx context.Context, batch *inflightBatch, from, end int64) (int64, error) {
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
