package kafka

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// inflightBatch is a batch in the bytes that go over the wire, again and again if need be.
type inflightBatch struct {
	bytes    []byte
	sequence int32
	records  int32
	// unknown is set when an attempt may have stored it.
	unknown bool
	// ids of its messages; set when the batch is left pending, and while the lane is unverified.
	ids []string
}

// scratch has the buffers for encoding a batch. The sink keeps a pool of them, so memory grows with
// the running calls and not with the number of partitions.
type scratch struct {
	writer batchWriter
	bytes  []byte
	size   int // of the last batch, before compression
}

// encodeBatch encodes as many of the messages as fit a batch, at least one. All records have the
// same time, unless they have their events' own: redate relies on it. The batch's bytes belong to
// work until keepPending copies them. An error refuses the first message.
func (l *lane) encodeBatch(
	work *scratch, messages []*sinks.Message, enc encoder,
) (*inflightBatch, int, error) {
	if bytes, size, count := l.sink.fitted.reuse(messages[0].Event); bytes != nil {
		work.bytes, work.size = bytes, size
		return l.stamped(bytes, count, messages[:1]), 1, nil
	}
	w, n, now := &work.writer, 0, time.Now()
	w.reset()
	for _, m := range messages {
		before := w.savepoint()
		if err := enc.tryPut(w, m.Event, now); err != nil {
			if n == 0 {
				return nil, 1, err
			}
			w.truncate(before) // it is the first of the next batch
			break
		}
		if n > 0 && w.size() > l.target {
			w.truncate(before)
			break
		}
		n++
	}
	if work.size = w.size(); work.size > maxRequest {
		return nil, 1, fmt.Errorf("more than %d bytes are never sent", maxRequest)
	}
	bytes, err := w.finish(work.bytes[:0], l.sink.codec)
	if err != nil {
		return nil, 1, fmt.Errorf("compress: %w", err)
	}
	work.bytes = bytes
	return l.stamped(bytes, w.count, messages[:n]), n, nil
}

// stamped makes encoded messages the lane's next batch.
func (l *lane) stamped(bytes []byte, records int32, messages []*sinks.Message) *inflightBatch {
	stamp(bytes, l.producer.id, l.producer.epoch, l.sequence)
	batch := &inflightBatch{bytes: bytes, sequence: l.sequence, records: records}
	if l.unverified() {
		batch.setIDs(messages)
	}
	return batch
}

// smaller returns how many messages to try after a batch of n was refused. Where the batch was too
// large as a whole, later ones are smaller from the start: a message that is too large by itself
// was never in a batch with others.
func (l *lane) smaller(batch *inflightBatch, n int, err error) int {
	if isTooLarge(err) {
		l.target = min(l.target, max(smallestTarget, len(batch.bytes)/2))
	}
	return n / 2
}

// keepPending keeps a batch with an unknown result, for the next call on the lane to settle first.
func (l *lane) keepPending(batch *inflightBatch, messages []*sinks.Message) {
	if !batch.unknown {
		return
	}
	batch.bytes = append([]byte(nil), batch.bytes...)
	batch.setIDs(messages)
	l.pending = batch
}

// setIDs records the ids of the messages that the batch holds.
func (batch *inflightBatch) setIDs(messages []*sinks.Message) {
	batch.ids = make([]string, len(messages))
	for i, m := range messages {
		batch.ids[i] = m.Event.MessageID()
	}
}
