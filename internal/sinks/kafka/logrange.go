package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// logRange is a part of a lane's log that is read, and how far that has come: a later call
// continues there.
type logRange struct {
	from, end int64
	cut       bool // some of it was gone before it was read
	// since when the log has ended before from, or has nothing there; zero: it has not
	short time.Time
}

// batchVisitor receives what is read of a logRange. ids are those of the batch's messages that this
// sink has sent, of batches for which wantIDs is true. An error ends the reading, and the next call
// reads the same page again.
type batchVisitor struct {
	wantIDs func(batchHead) bool // nil: ids of no batch
	batch   func(b batchHead, ids []string) error
}

// everyBatch is wantIDs for all batches.
func everyBatch(batchHead) bool { return true }

// read reads the rest of a logRange. What retention has deleted meanwhile is left out. So is what
// lies behind the end of the log, when that lasts longer than a deposed leader may not know that it
// is one: then the range is cut.
func (l *lane) read(ctx context.Context, t *logRange, each batchVisitor) error {
	for t.from < t.end {
		p, err := l.page(ctx, t)
		if err != nil {
			return err
		}
		for _, b := range p.batches {
			if err := each.batch(b.batchHead, l.idsIn(&b, t.from, each.wantIDs)); err != nil {
				return err
			}
			t.from = b.next()
		}
		t.from = p.next
	}
	return nil
}

// page reads the next page of a logRange. It may be empty, where something is left out.
func (l *lane) page(ctx context.Context, t *logRange) (p page, err error) {
	err = l.retry(ctx, "read the tail", func() (err error) {
		p, err = l.cluster.fetch(ctx, l.topic, l.partition, t.from, readAll)
		switch {
		case errors.Is(err, kafkago.OffsetOutOfRange):
			p.next, err = l.skipMissing(ctx, t, err)
		case err == nil && p.next <= t.from:
			p.next, err = t.tooShort(fmt.Errorf("%w: nothing is at %d, before the end at %d",
				errMalformed, t.from, t.end))
		case err == nil:
			t.short = time.Time{}
		}
		return err
	})
	if err != nil {
		return page{}, fmt.Errorf("read %s from %d: %w", l.name, t.from, err)
	}
	return p, nil
}

// idsIn returns the ids of a batch's messages that this sink has sent, from an offset on; none of a
// batch whose ids are not wanted. A batch that can't be read is taken for somebody else's: if it is
// this sink's, its events are sent again.
func (l *lane) idsIn(b *logBatch, from int64, wanted func(batchHead) bool) (ids []string) {
	if wanted == nil || !wanted(b.batchHead) || b.isForeign() {
		return nil
	}
	err := b.each(from, func(r *record) {
		if id := l.sink.messageID(r); id != "" {
			ids = append(ids, id)
		}
	})
	if err != nil {
		l.sink.warnDamaged(l.name, b, err)
		return nil
	}
	return ids
}

// skipMissing returns where to continue after the broker has answered that from is not in the log.
func (l *lane) skipMissing(
	ctx context.Context, t *logRange, outOfRange error,
) (next int64, err error) {
	start, err := l.cluster.offset(ctx, l.topic, l.partition, earliest)
	switch {
	case err != nil:
		return t.from, err
	case start > t.from:
		t.cut = true
		return min(start, t.end), nil
	default:
		return t.tooShort(outOfRange)
	}
}

// tooShort is called when the log ends before the range does. Either this leader is deposed and
// does not know it yet, or its replica lags: then err is returned and the read repeated. After a
// while the records are lost.
func (t *logRange) tooShort(err error) (next int64, _ error) {
	if t.short.IsZero() {
		t.short = time.Now()
	}
	if time.Since(t.short) < leaderTimeout {
		return t.from, err
	}
	t.cut = true
	return t.end, nil
}
