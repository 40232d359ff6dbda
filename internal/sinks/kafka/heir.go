package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A process that dies leaves at most one batch per lane without an answer. The broker may store it at any later time: it lies in a queue there, or
// is stored already but not yet visible, since its copies are not made. Recall can't see it then. So the next process carries on where the dead one
// was: with its producer id, and with the sequence number behind its last visible batch. The broker takes one batch for that number: either
// the late one, which is found then before anything of it is sent again, or ours, and never takes the late one any more. A process that ends before it
// has sent anything to a lane leaves to the next what it was left itself.
//
// The broker tells one batch from another by its producer, sequence number and number of records, and not by what it holds: it acknowledges ours when it has a
// late one of as many records. So an acknowledgement counts only when ours was read in the place that it names. Not to see the late one proves nothing:
// retention may have deleted it, the right to read may be gone, or a leader that is none any more was asked.

// lateness is how long a late batch may stay invisible: until a copy that does not come is given up (replica.lag.time.max.ms, 30 s).
const lateness = 90 * time.Second

var (
	errNotThere = errors.New("what was acknowledged can't be found in the log: it is sent again, and may be there twice (with the same ids)")
	errNotOurs  = errors.New("a batch of another process lies in the place of this one")
)

// inherit makes the lane go on with what an earlier process has left, if it did.
func (l *lane) inherit() bool {
	h := l.sink.recall.heir(l.topic, l.partition)
	if h.producer < 0 {
		return false
	}
	l.producer, l.sequence, l.next = producer{h.producer, h.epoch}, h.sequence, h.offset
	l.started, l.unproven, l.since = true, true, time.Now()
	l.noted()
	return true
}

// prove decides about the acknowledgement of an unproven lane's batch by what lies in the place that it names: the batch itself; a late one in its place; or
// nothing that could be read.
func (l *lane) prove(ctx context.Context, f *frozen, offset int64) (verdict, error) {
	b, ids, err := l.batchAt(ctx, offset)
	switch {
	case errors.Is(err, errNotThere):
		return l.another(ctx, f, err)
	case unreadable(err):
		return l.another(ctx, f, fmt.Errorf("%w: %w", errNotThere, err))
	case err != nil:
		return sort(err), err
	case l.is(f, b, ids):
		l.unproven = false
		return stored, nil
	case b.producer == l.producer.id && b.epoch >= l.producer.epoch:
		return l.giveWay(ctx, b, ids)
	default:
		return l.another(ctx, f, errNotThere)
	}
}

// is says whether a batch of the log is the frozen one.
func (l *lane) is(f *frozen, b batchHead, ids []string) bool {
	return b.producer == l.producer.id && b.epoch == l.producer.epoch && b.sequence == f.sequence && slices.Equal(ids, f.ids)
}

// own says whether a batch bears the lane's producer id: it is its own, or its ancestor's.
func (l *lane) own(b batchHead) bool { return b.producer == l.producer.id }

// batchAt reads the batch that begins at an offset. It is errNotThere when there is none.
func (l *lane) batchAt(ctx context.Context, offset int64) (found batchHead, ids []string, err error) {
	if offset < 0 {
		return batchHead{}, nil, errNotThere
	}
	if l.proof == nil || l.proof.end != offset+1 {
		l.proof = &tail{from: offset, end: offset + 1}
	}
	none := true
	err = l.read(ctx, l.proof, pages{wanted: l.own, batch: func(b batchHead, its []string) error {
		if b.offset == offset {
			found, ids, none = b, its, false
		}
		return nil
	}})
	if err == nil {
		l.proof = nil
		if none {
			err = errNotThere
		}
	}
	return found, ids, err
}

// another sends a batch again that may be stored, as the first one of a producer that nobody has been before.
func (l *lane) another(ctx context.Context, f *frozen, cause error) (verdict, error) {
	if err := l.confirm(ctx); err != nil {
		return away, errors.Join(cause, err)
	}
	if err := l.renew(ctx, true); err != nil {
		return sort(err), err
	}
	l.sink.metrics.recoveries.WithLabelValues("unread").Inc()
	l.sink.log.Warn("can't see whether the first batch since the start is stored, or an earlier process's in its place; sending it again, its events may be there twice "+
		"(with the same ids)", "lane", l.name, "err", cause)
	l.restamp(f)
	return resend, cause
}

// giveWay puts a late batch before the frozen one, which was not stored.
func (l *lane) giveWay(ctx context.Context, b batchHead, ids []string) (verdict, error) {
	if err := l.confirm(ctx); err != nil {
		return away, errors.Join(errNotOurs, err)
	}
	l.carryOn(b, ids)
	return overtaken, nil
}

// late decides about the answer that the sequence number of an unproven lane's batch is not the next one: a late batch has it, which may not
// be visible yet. It gives forgotten when it is not that.
func (l *lane) late(ctx context.Context, f *frozen) (verdict, error) {
	outcome, err := l.findLate(ctx, f)
	switch {
	case outcome != forgotten:
		return outcome, err
	case err != nil && !unreadable(err):
		return sort(err), err
	case err == nil && time.Since(l.since) < lateness:
		return resend, nil
	default:
		return forgotten, nil
	}
}

// findLate looks behind the place where the lane began for batches of its producer that are not its own, and carries on behind them: overtaken. It is
// stored when the frozen batch is there, forgotten when there is neither. What it has read it does not read again.
func (l *lane) findLate(ctx context.Context, f *frozen) (verdict, error) {
	_, end, err := l.bounds(ctx)
	if err != nil {
		return forgotten, err
	}
	if l.search == nil {
		l.search = &tail{from: l.next}
	}
	l.search.from, l.search.end = max(l.search.from, l.next), end
	outcome := forgotten
	err = l.read(ctx, l.search, pages{wanted: l.own, batch: func(b batchHead, ids []string) (err error) {
		switch {
		case !l.own(b) || b.epoch < l.producer.epoch || b.offset < l.next:
		case l.is(f, b, ids):
			l.unproven, outcome = false, stored
			l.advance(f, b.offset)
		default:
			outcome, err = l.giveWay(ctx, b, ids)
		}
		return err
	}})
	return outcome, err
}

// carryOn puts the lane behind a late batch. Its ids become part of the checkpoint before the lane's place moves behind them.
func (l *lane) carryOn(b batchHead, ids []string) {
	for _, id := range ids {
		l.sink.recall.found(id)
	}
	l.know(ids...)
	l.producer.epoch, l.sequence = b.epoch, sequenceAfter(b.sequence, b.records)
	l.next = b.offset + int64(b.records)
	l.noted()
	l.sink.metrics.recoveries.WithLabelValues("late").Inc()
	l.sink.log.Info("found a batch that an earlier process had sent, and that was stored after the start; it is not sent again",
		"lane", l.name, "messages", len(ids))
}

// confirm asks whether this process may still publish: if not, its successor goes on with its producers and sequence numbers, and that the broker knows others is no forgetting.
func (l *lane) confirm(ctx context.Context) error {
	if confirm := l.sink.config.Confirm; confirm != nil {
		return confirm(ctx)
	}
	return nil
}
