package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// maxRequest is a batch that no broker takes: brokers close the connection on requests above socket.request.max.bytes
// (100 MiB by default) without saying why, so that sending it would never end.
const maxRequest = 64 << 20

// smallestTarget is where learning smaller batch sizes from refusals ends.
const smallestTarget = 16 << 10

// producer is an idempotent producer's identity.
type producer struct {
	id    int64
	epoch int16
}

// lane is one partition as this sink writes it: an idempotent producer of its own, with one batch on its way at most.
// Its own producer id, and not one for the whole sink, lets a lane start anew without any other lane having to.
type lane struct {
	sink      *Sink
	cluster   *cluster
	topic     string
	partition int
	name      string

	// turn holds a token while somebody works on the lane; the holder owns all below.
	turn chan struct{}

	started  bool
	producer producer
	sequence int32 // of the next record
	next     int64 // the offset behind our last acknowledged record; before it, the end of the log when the lane started
	target   int   // size of a batch before compression
	pending  *frozen
	ahead    []string // ids of messages that are stored but whose callers have not been told
}

// frozen is a batch as it goes over the wire, again and again if need be.
type frozen struct {
	bytes    []byte
	sequence int32
	records  int32
	// unknown is set when an attempt may have stored it.
	unknown bool
	// ids of its messages; set when the batch is left pending.
	ids []string
}

// scratch is what encoding a batch takes. The sink keeps some, so that memory goes with the calls that run and not with
// the number of partitions.
type scratch struct {
	writer batchWriter
	bytes  []byte
}

func newLane(s *Sink, c *cluster, topic string, partition, target int) *lane {
	return &lane{
		sink: s, cluster: c, topic: topic, partition: partition, target: target,
		name: topic + "/" + strconv.Itoa(partition), turn: make(chan struct{}, 1),
	}
}

// publish stores messages in their order, and answers each.
func (l *lane) publish(ctx context.Context, messages []*sinks.Message, enc encoder) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		sinks.Fail(messages, gone(ctx))
		return
	}
	if err := l.ready(ctx); err != nil {
		sinks.Fail(messages, err)
		return
	}
	messages = l.skipStored(messages)
	work := l.sink.scratch.Get().(*scratch)
	defer l.sink.scratch.Put(work)
	for limit := len(messages); len(messages) > 0; limit = min(limit, len(messages)) {
		f, n, err := l.freeze(work, messages[:limit], enc)
		outcome := refused
		if err == nil {
			outcome, err = l.settle(ctx, f)
		}
		switch {
		case outcome == stored:
			sinks.Fail(messages[:n], nil)
			messages, limit = messages[n:], len(messages)
		case outcome == refused && n > 1:
			limit = l.smaller(f, n, err)
		case outcome == refused:
			messages[0].Err = refuse(fmt.Errorf("%s refused a record of %d bytes: %w", l.topic, work.writer.size(), err))
			messages, limit = messages[1:], len(messages)
		default:
			l.leave(f, messages[:n])
			sinks.Fail(messages, l.unanswered(ctx, outcome, err))
			return
		}
	}
}

// ready gives the lane a producer when it is new, and settles what an earlier call had to leave.
func (l *lane) ready(ctx context.Context) error {
	if !l.started {
		if err := l.start(ctx); err != nil {
			return l.unanswered(ctx, sort(err), err)
		}
	}
	if l.pending == nil {
		return nil
	}
	outcome, err := l.settle(ctx, l.pending)
	switch outcome {
	case stored:
		l.ahead = append(l.ahead, l.pending.ids...)
	case refused: // its messages will come again, and be refused one by one
	default:
		return l.unanswered(ctx, outcome, err)
	}
	l.pending = nil
	return nil
}

// start gets a producer id, and the place in the log behind which this lane's records will lie.
func (l *lane) start(ctx context.Context) error {
	p := l.producer
	err := l.until(ctx, "start", func() (err error) {
		p, err = l.sink.takeProducer(ctx, l.cluster)
		return err
	})
	if err != nil {
		return err
	}
	err = l.until(ctx, "start", func() (err error) {
		l.next, err = l.cluster.offset(ctx, l.topic, l.partition, latest)
		return err
	})
	if err != nil {
		return err
	}
	l.producer, l.sequence, l.started = p, 0, true
	return nil
}

// skipStored answers the messages that an earlier call's batch has turned out to hold. They come first and in order, since callers send
// what was not answered again before anything else of the lane.
func (l *lane) skipStored(messages []*sinks.Message) []*sinks.Message {
	for len(l.ahead) > 0 && len(messages) > 0 {
		if l.ahead[0] != messages[0].Event.MessageID() {
			l.ahead = nil
			break
		}
		messages[0].Err = nil
		l.ahead, messages = l.ahead[1:], messages[1:]
	}
	return messages
}

// freeze encodes as many of the messages as fit a batch, at least one. The batch's bytes belong to work until leave clones them. An
// error refuses the first message.
func (l *lane) freeze(work *scratch, messages []*sinks.Message, enc encoder) (*frozen, int, error) {
	w, n, now := &work.writer, 0, time.Now()
	w.reset()
	for _, m := range messages {
		before := w.mark()
		enc.put(w, m.Event, now)
		if n > 0 && w.size() > l.target {
			w.truncate(before)
			break
		}
		n++
	}
	if w.size() > maxRequest {
		return nil, 1, fmt.Errorf("more than %d bytes are never sent", maxRequest)
	}
	bytes, err := w.finish(work.bytes[:0], l.sink.codec)
	if err != nil {
		return nil, 1, fmt.Errorf("compress: %w", err)
	}
	work.bytes = bytes
	stamp(bytes, l.producer.id, l.producer.epoch, l.sequence)
	return &frozen{bytes: bytes, sequence: l.sequence, records: w.count}, n, nil
}

// smaller says how many messages to try after a batch of n was refused. Where the batch was too large as a whole, later ones will be
// smaller from the start: a message that is too large by itself was never in a batch with others.
func (l *lane) smaller(f *frozen, n int, err error) int {
	if isTooLarge(err) {
		l.target = min(l.target, max(smallestTarget, len(f.bytes)/2))
	}
	return n / 2
}

// leave keeps a batch whose fate is unknown, for the next call on the lane to settle first.
func (l *lane) leave(f *frozen, messages []*sinks.Message) {
	if !f.unknown {
		return
	}
	f.bytes = append([]byte(nil), f.bytes...)
	f.ids = make([]string, len(messages))
	for i, m := range messages {
		f.ids[i] = m.Event.MessageID()
	}
	l.pending = f
}

// unanswered is the error of messages that the lane could not settle.
func (l *lane) unanswered(ctx context.Context, outcome verdict, err error) error {
	if outcome == stopped {
		return gone(ctx)
	}
	return reconnect(fmt.Errorf("publish to %s: %w", l.name, err))
}

// advance moves the lane behind a stored batch. The offset is negative where the broker did not tell it.
func (l *lane) advance(f *frozen, offset int64) {
	l.sequence = sequenceAfter(f.sequence, f.records)
	if offset >= 0 {
		l.next = offset + int64(f.records)
	}
}

// sequenceAfter is the sequence number behind records; they wrap at the end of the positive int32s.
func sequenceAfter(sequence, records int32) int32 {
	return int32((int64(sequence) + int64(records)) & math.MaxInt32)
}
