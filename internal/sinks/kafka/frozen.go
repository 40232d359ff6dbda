package kafka

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// frozen is a batch as it goes over the wire, again and again if need be.
type frozen struct {
	bytes    []byte
	sequence int32
	records  int32
	// unknown is set when an attempt may have stored it.
	unknown bool
	// ids of its messages; set when the batch is left pending, and while the lane is unproven.
	ids []string
}

// scratch is what encoding a batch takes. The sink keeps some, so that memory goes with the calls that run and not with
// the number of partitions.
type scratch struct {
	writer batchWriter
	bytes  []byte
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
	f := &frozen{bytes: bytes, sequence: l.sequence, records: w.count}
	if l.unproven {
		f.name(messages[:n])
	}
	return f, n, nil
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
	f.name(messages)
	l.pending = f
}

// name notes the messages that the batch holds.
func (f *frozen) name(messages []*sinks.Message) {
	f.ids = make([]string, len(messages))
	for i, m := range messages {
		f.ids[i] = m.Event.MessageID()
	}
}
