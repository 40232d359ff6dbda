package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
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

	// Of a lane that carries on for an earlier process, or may.
	unproven bool      // nothing of its own was seen in the log yet
	since    time.Time // when it began
	proof    *tail     // the place of its first batch, while that is looked at
	search   *tail     // where late batches are looked for
	left     *readback // what it has to read first; see start

	known    map[string]bool // ids of messages that are stored and come again
	deadline time.Time       // behind which it does not wait for what fails; zero: as long as its caller does

	// place is where the lane is, for Position; nil before it has started.
	place atomic.Pointer[place]
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
	messages = l.skipKnown(l.skipStored(messages))
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
		case outcome == overtaken:
			messages = l.skipKnown(messages)
			limit = len(messages)
		case outcome == refused && n > 1:
			limit = l.smaller(f, n, err)
		case outcome == refused:
			messages[0].Err = refuse(fmt.Errorf("%s refused a record of %d bytes: %w", l.topic, work.writer.size(), asTooLarge(err)))
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
	case refused, overtaken: // its messages will come again: to be refused one by one; without what is known
	default:
		return l.unanswered(ctx, outcome, err)
	}
	l.pending = nil
	return nil
}

// start gets a producer id, and the place in the log behind which this lane's records will lie. What Recall could not read is read first.
func (l *lane) start(ctx context.Context) error {
	if l.sink.recall.isUnread(l.topic, l.partition) {
		if err := l.readLeft(ctx); err != nil {
			return err
		}
	}
	if l.inherit() {
		return nil
	}
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
	l.noted()
	return nil
}

// skipStored answers the messages that an earlier call's batch has turned out to hold. They come first and in order where callers send
// what was not answered again before anything else of the lane. Dead letters are sent by several, so theirs may come later.
func (l *lane) skipStored(messages []*sinks.Message) []*sinks.Message {
	for len(l.ahead) > 0 && len(messages) > 0 {
		if l.ahead[0] != messages[0].Event.MessageID() {
			l.know(l.ahead...)
			l.ahead = nil
			break
		}
		messages[0].Err = nil
		l.ahead, messages = l.ahead[1:], messages[1:]
	}
	return messages
}

// maxKnown bounds the ids that a lane remembers: what others write to the topic may look like its own.
const maxKnown = 100_000

// know notes messages that are stored, and that a caller may send again. Those beyond the bound are
// stored twice, with the same ids.
func (l *lane) know(ids ...string) {
	if l.known == nil {
		l.known = make(map[string]bool, len(ids))
	}
	for _, id := range ids {
		if len(l.known) < maxKnown {
			l.known[id] = true
		}
	}
}

// skipKnown answers the messages that are known to be stored, but for those that must come again.
func (l *lane) skipKnown(messages []*sinks.Message) []*sinks.Message {
	if len(l.known) == 0 {
		return messages
	}
	left := make([]*sinks.Message, 0, len(messages))
	for _, m := range messages {
		if id := m.Event.MessageID(); l.known[id] && m.Event.Run == "" {
			delete(l.known, id)
			m.Err = nil
		} else {
			left = append(left, m)
		}
	}
	return left
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
	l.noted()
}

// noted is called after each step that a lane has made.
func (l *lane) noted() {
	l.place.Store(&place{offset: l.next, producer: l.producer.id, epoch: l.producer.epoch, sequence: l.sequence})
}

// sequenceAfter is the sequence number behind records; they wrap at the end of the positive int32s.
func sequenceAfter(sequence, records int32) int32 {
	return int32((int64(sequence) + int64(records)) & math.MaxInt32)
}
