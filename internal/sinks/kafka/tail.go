package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// tail is a part of a lane's log that is read, and how far that has come: a later call goes on there.
type tail struct {
	from, end int64
	cut       bool      // something of it was gone before it was read
	short     time.Time // since when the log has ended before from, or has nothing there; zero: it does not
}

// pages tells what is read of a tail. ids are those of the messages of a batch that this sink has sent, where wanted says that they are of use. An error
// ends the reading, and the same page is read again by the next call.
type pages struct {
	wanted func(batchHead) bool // nil: of no batch
	batch  func(b batchHead, ids []string) error
}

// every is wanted for all batches.
func every(batchHead) bool { return true }

// read reads what is left of a tail. What retention has deleted meanwhile is left out, and so is what the log ends before for longer than a leader may be
// mistaken: then the tail is cut.
func (l *lane) read(ctx context.Context, t *tail, each pages) error {
	for t.from < t.end {
		p, err := l.page(ctx, t)
		if err != nil {
			return err
		}
		for _, b := range p.batches {
			if err := each.batch(b.batchHead, l.idsIn(&b, t.from, each.wanted)); err != nil {
				return err
			}
			t.from = b.next()
		}
		t.from = p.next
	}
	return nil
}

// page reads the next page of a tail. It may be empty, where something is left out.
func (l *lane) page(ctx context.Context, t *tail) (p page, err error) {
	err = l.until(ctx, "read the tail", func() (err error) {
		p, err = l.cluster.fetch(ctx, l.topic, l.partition, t.from)
		switch {
		case errors.Is(err, kafkago.OffsetOutOfRange):
			p.next, err = l.leaveOut(ctx, t, err)
		case err == nil && p.next <= t.from:
			p.next, err = t.tooShort(fmt.Errorf("%w: nothing is at %d, before the end at %d", errMalformed, t.from, t.end))
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

// idsIn gives the ids of a batch's messages that this sink has sent, from an offset on; none of a
// batch that is not wanted. One that can't be read is taken for somebody else's: if it is this sink's,
// its events are sent again.
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

// leaveOut says where to go on after the broker has said that a tail does not lie in the log.
func (l *lane) leaveOut(ctx context.Context, t *tail, outOfRange error) (next int64, err error) {
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

// tooShort is about a log that ends before the tail does: the leader does not know yet that it is none, or its copies are behind; after a while, that records are lost.
func (t *tail) tooShort(err error) (next int64, _ error) {
	if t.short.IsZero() {
		t.short = time.Now()
	}
	if time.Since(t.short) < deposed {
		return t.from, err
	}
	t.cut = true
	return t.end, nil
}
