package kafka

import (
	"context"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// A process that dies leaves at most one batch per lane without an answer. The broker may store it at any later time: it lies in a queue there, or
// is stored already but not yet visible, since its copies are not made. Recall can't see it then. So the next process carries on where the dead one
// was: with its producer id, and with the sequence number behind its last visible batch. The broker takes one batch for that number: either
// the late one, which is found then before anything of it is sent again, or ours, and never takes the late one any more. A process that ends before it
// has sent anything to a lane leaves to the next what it was left itself.

// lateness is how long a late batch may stay invisible: until a copy that does not come is given up (replica.lag.time.max.ms, 30 s).
const lateness = 90 * time.Second

// inherit makes the lane go on with what an earlier process has left, if it did.
func (l *lane) inherit() bool {
	h := l.sink.recall.heir(l.topic, l.partition)
	if h == unused {
		return false
	}
	l.producer, l.sequence, l.next = producer{h.producer, h.epoch}, h.sequence, h.offset
	l.started, l.unproven, l.since = true, true, time.Now()
	l.noted()
	return true
}

// inheritance is what follows from the batches behind a saved place: the producer, the sequence number of its next batch, and an offset that this will
// have, or a later one. It is unused when they do not tell.
func inheritance(saved place, batches []batchHead, end int64) place {
	if saved.producer < 0 {
		return unused
	}
	h := saved
	h.offset = end
	for _, b := range batches {
		if b.producer == saved.producer && b.epoch >= h.epoch {
			h.epoch, h.sequence = b.epoch, sequenceAfter(b.sequence, b.records)
		}
	}
	return h
}

// prove sees whether the first batch of a lane that has inherited is the one that was stored, or an earlier process's in its place.
func (l *lane) prove(ctx context.Context, f *frozen) (verdict, error) {
	late, err := l.findLate(ctx, f)
	switch {
	case err != nil && !unreadable(err):
		return sort(err), err
	case late:
		return overtaken, nil
	}
	l.unproven = false
	return stored, nil
}

// late decides about the answer that the sequence number of a lane's first batch is not the next one: a late batch has it, which may not
// be visible yet. It gives forgotten when it is not that.
func (l *lane) late(ctx context.Context, f *frozen) (verdict, error) {
	late, err := l.findLate(ctx, f)
	switch {
	case err != nil && !unreadable(err):
		return sort(err), err
	case late:
		return overtaken, nil
	case err == nil && time.Since(l.since) < lateness:
		return resend, nil
	}
	l.unproven = false
	return forgotten, nil
}

// findLate looks behind the place where the lane began for batches of its producer that are not its own, and carries on behind them.
func (l *lane) findLate(ctx context.Context, f *frozen) (late bool, err error) {
	_, end, err := l.bounds(ctx)
	if err != nil {
		return false, err
	}
	found := map[int64]string{} // ids by offset
	batches, err := l.walk(ctx, l.next, end, func(r *protocol.Record) error {
		if id := messageID(r); id != "" {
			found[r.Offset] = id
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, b := range batches {
		if b.producer != l.producer.id || b.epoch < l.producer.epoch {
			continue
		}
		var ids []string
		for at := b.offset; at < b.offset+int64(b.records); at++ {
			if id, ok := found[at]; ok {
				ids = append(ids, id)
			}
		}
		if b.sequence == f.sequence && b.epoch == l.producer.epoch && slices.Equal(ids, f.ids) {
			return false, nil
		}
		late = true
		l.carryOn(b, ids)
	}
	return late, nil
}

// carryOn puts the lane behind a late batch.
func (l *lane) carryOn(b batchHead, ids []string) {
	if l.known == nil {
		l.known = map[string]bool{}
	}
	for _, id := range ids {
		l.known[id] = true
	}
	l.producer.epoch, l.sequence = b.epoch, sequenceAfter(b.sequence, b.records)
	l.next = b.offset + int64(b.records)
	l.unproven = false
	l.noted()
	l.sink.metrics.recoveries.WithLabelValues("late").Inc()
	l.sink.log.Info("found a batch that an earlier process had sent, and that was stored after the start; it is not sent again",
		"lane", l.name, "messages", len(ids))
}
