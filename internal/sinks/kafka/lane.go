package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// maxRequest is a batch that no broker accepts: brokers close the connection on requests above
// socket.request.max.bytes (100 MiB by default) without a reason, so retries would never end.
const maxRequest = 64 << 20

// smallestTarget is where learning smaller batch sizes from refusals ends.
const smallestTarget = 16 << 10

// producer is an idempotent producer's identity.
type producer struct {
	id    int64
	epoch int16
}

// lane is one partition as this sink writes it: an idempotent producer of its own, with at most one
// batch in flight. Its own producer id, and not one for the whole sink, lets a lane restart its
// numbering without affecting any other lane.
type lane struct {
	sink      *Sink
	cluster   *cluster
	topic     string
	partition int
	name      string
	limit     *sinks.SizeLimit // of the topic; nil for a lane that only reads

	// busy is held by whoever works on the lane; the holder owns all fields below.
	busy *semaphore.Weighted

	started  bool
	producer producer
	sequence int32 // of the next record
	// the offset behind our last acknowledged record; before that, the end of the log when the lane
	// started
	next      int64
	target    int // size of a batch before compression, within limit
	pending   *inflightBatch
	storedIDs storedIDs   // of messages that callers will send again
	unread    *readback   // what it has to read first; see start
	resumed   *resumption // nil unless the lane is unverified
	// after it, the lane does not retry; zero: it retries as long as its caller waits
	deadline time.Time

	// saved is what Position saves of the lane; nil before the lane has started.
	saved    atomic.Pointer[savedOffset]
	logStart logStart
}

func newLane(s *Sink, c *cluster, topic string, partition, target int) *lane {
	l := &lane{
		sink: s, cluster: c, topic: topic, partition: partition, target: target,
		name: laneName(topic, partition), busy: semaphore.NewWeighted(1),
	}
	l.logStart.at.Store(-1)
	return l
}

func laneName(topic string, partition int) string { return topic + "/" + strconv.Itoa(partition) }

// publish stores messages in their order, and answers each.
func (l *lane) publish(ctx context.Context, messages []*sinks.Message, enc encoder) {
	if l.busy.Acquire(ctx, 1) != nil {
		sinks.Fail(messages, stoppedError(ctx))
		return
	}
	defer l.busy.Release(1)
	if err := l.ready(ctx); err != nil {
		sinks.Fail(messages, err)
		return
	}
	messages = l.storedIDs.skip(messages)
	work := l.sink.scratch.Get().(*scratch)
	defer l.sink.scratch.Put(work)
	for limit := len(messages); len(messages) > 0; limit = min(limit, len(messages)) {
		batch, n, err := l.encodeBatch(work, messages[:limit], enc)
		result := refused
		if err == nil {
			result, err = l.send(ctx, batch)
		}
		switch {
		case result == stored:
			sinks.Fail(messages[:n], nil)
			messages, limit = messages[n:], len(messages)
		case result == overtaken:
			messages = l.storedIDs.skip(messages)
			limit = len(messages)
		case result == refused && n > 1:
			limit = l.smaller(batch, n, err)
		case result == refused && isTooLarge(err) && l.lowerLimit(ctx, len(batch.bytes)-sizePrefix):
			// later messages may be of the same object: they wait behind its smaller form
			sinks.Fail(messages, asRetry(fmt.Errorf("%s refused a record of %d bytes: %w", l.topic,
				work.size, asTooLarge(err))))
			return
		case result == refused:
			messages[0].Err = asRefused(fmt.Errorf("%s refused a record of %d bytes: %w", l.topic,
				work.size, asTooLarge(err)))
			messages, limit = messages[1:], len(messages)
		default:
			l.keepPending(batch, messages[:n])
			sinks.Fail(messages, l.unanswered(ctx, result, err))
			return
		}
	}
}

// ready gives a new lane a producer, and settles the batch that an earlier call left pending.
func (l *lane) ready(ctx context.Context) error {
	if !l.started {
		if err := l.start(ctx); err != nil {
			return l.unanswered(ctx, classify(err), err)
		}
	}
	if l.pending == nil {
		return nil
	}
	result, err := l.send(ctx, l.pending)
	switch result {
	case stored:
		l.storedIDs.addInOrder(l.pending.ids)
	// its messages will be sent again: one by one, or without those that are stored
	case refused, overtaken:
	default:
		return l.unanswered(ctx, result, err)
	}
	l.pending = nil
	return nil
}

// start gets a producer id, and the offset behind which this lane's records will lie. What ReadBack
// could not read is read first.
func (l *lane) start(ctx context.Context) error {
	if l.sink.readBack.isUnread(l.topic, l.partition) {
		if err := l.readUnread(ctx); err != nil {
			return err
		}
	}
	if l.resume() {
		return nil
	}
	p := l.producer
	err := l.retry(ctx, "start", func() (err error) {
		p, err = l.sink.nextProducer(ctx, l.cluster)
		return err
	})
	if err != nil {
		return err
	}
	err = l.retry(ctx, "start", func() (err error) {
		l.next, err = l.cluster.offset(ctx, l.topic, l.partition, latest)
		return err
	})
	if err != nil {
		return err
	}
	l.producer, l.sequence, l.started = p, 0, true
	l.publishSaved()
	return nil
}

// unanswered is the error of messages that the lane could not settle.
func (l *lane) unanswered(ctx context.Context, result outcome, err error) error {
	if result == stopped {
		return stoppedError(ctx, err)
	}
	return asReconnect(fmt.Errorf("publish to %s: %w", l.name, err))
}

// advance moves the lane behind a stored batch. The offset is negative where the broker did not
// report it.
func (l *lane) advance(batch *inflightBatch, offset int64) {
	l.sequence = sequenceAfter(batch.sequence, batch.records)
	if offset >= 0 {
		if offset < l.next {
			l.reportLost(offset)
		} else if offset > l.next && l.sink.config.View {
			l.sink.view.rows.note(l, offsets{l.next, offset})
		}
		l.next = offset + int64(batch.records)
		if l.logStart.old.Load() == nil {
			old := cmp.Or(l.savedOld(), storedAt{offset, time.Now().Unix()})
			l.logStart.old.CompareAndSwap(nil, &old) // Inspect may have set it
		}
	}
	l.publishSaved()
}

// reportLost reports that the partition's log ends, or continues, before records that it had
// acknowledged: the topic was recreated, or a replica that lagged was elected.
func (l *lane) reportLost(end int64) {
	l.sink.view.rows.forget(l)
	l.sink.losses.Add(sinks.Loss{
		Destination: l.name, Reason: l.sink.reasonOfLoss(l.topic, end), Before: uint64(l.next),
		Now: uint64(end),
	})
}

// publishSaved lets Position see the lane's saved offset. Call it after each change of the saved
// offset.
func (l *lane) publishSaved() {
	l.saved.Store(&savedOffset{
		offset: l.next, producer: l.producer.id, epoch: l.producer.epoch,
		sequence: l.sequence, start: unused.start,
	})
}

// sequenceAfter is the sequence number after these records; numbers wrap at the end of the positive
// int32s.
func sequenceAfter(sequence, records int32) int32 {
	return int32((int64(sequence) + int64(records)) & math.MaxInt32)
}

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
	w, n, now, target := &work.writer, 0, time.Now(), l.batchTarget()
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
		if n > 0 && w.size() > target {
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

// batchTarget returns the size of a batch before compression.
func (l *lane) batchTarget() int {
	if most := l.limit.Load(); most > 0 {
		return min(l.target, most)
	}
	return l.target
}

// lowerLimit looks the topic's limit up again after it has refused one record for its size, and
// reports whether it is lower than was known.
func (l *lane) lowerLimit(ctx context.Context, size int) bool {
	lowered := l.limit.Refuse(size, func() (int, error) {
		return l.cluster.maxMessageBytes(ctx, l.topic)
	})
	if lowered {
		l.sink.log.Warn("the topic takes smaller batches than before: larger events are sent in a "+
			"smaller form", "topic", l.topic, "limit", l.limit.Load(), "refused", size)
	}
	return lowered
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

// DeadLetter stores the event in the dead-letter topic, with the attribute deadlettertopic: the
// topic it was intended for. The row of a deleted object is removed in any case.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if err := s.removeRow(ctx, e); err != nil {
		return err
	}
	if s.letters == nil {
		return sinks.ErrNoDeadLetter
	}
	intended := s.topic.Append(nil, e, event.AppendTopicPart)
	to := event.Attribute{Name: "deadlettertopic", Value: string(intended)}
	return sinks.DeadLetter(ctx, e, reason, attempts, to, s.sendLetter)
}

// sendLetter stores one letter. The letter of a deleted object is stored without a tombstone: that
// would delete the letters of earlier events from a compacted topic.
func (s *Sink) sendLetter(ctx context.Context, letter *event.Event) error {
	l, err := s.laneOf(ctx, s.letters, letter)
	if err != nil {
		return err
	}
	m := &sinks.Message{Event: letter}
	enc := s.encode
	enc.tombstones = false
	l.publish(ctx, []*sinks.Message{m}, enc)
	if errors.Is(m.Err, sinks.ErrTooLarge) {
		return asRefused(m.Err) // sinks.DeadLetter has smaller forms of a letter
	}
	return m.Err
}
