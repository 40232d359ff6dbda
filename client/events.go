package client

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Position is a place in a source, as text to keep. "" is the beginning.
type Position string

// maxIdentities is how many events Events remembers to drop repeats. A repeat comes soon after the
// event: it was sent again after a crash or an outage.
const maxIdentities = 1 << 16

// Events yields the events of a source behind a position, and then those that come, until ctx ends
// or the caller breaks. Keep the Position of an event with the effect that the event had: a program
// that continues from it misses nothing, and repeats nothing but what had no effect yet.
//
// A repeat of an event is dropped, also one of an event before the position. Gaps are events. Where
// the source has dropped messages that were not read, or was recreated, an event of TypeLost comes
// first. An error ends the sequence; a later call with the last Position continues.
func (s Source) Events(ctx context.Context, from Position) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		r := &eventReader{source: s, yield: yield, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
		if err := r.read(ctx, from); err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}

var errStopped = errors.New("the caller has stopped")

// eventReader is one call of Events.
type eventReader struct {
	source  Source
	yield   func(*Event, error) bool
	created time.Time

	seed maphash.Seed
	seen map[uint64]struct{}
	list []uint64 // of seen, in their order
	next int      // the place in list of the next one, once it is full
}

// isRepeat reports whether an event was seen before, and remembers it.
func (r *eventReader) isRepeat(e *Event) bool {
	hash := maphash.String(r.seed, e.identity())
	if _, ok := r.seen[hash]; ok {
		return true
	}
	if len(r.list) < maxIdentities {
		r.list = append(r.list, hash)
	} else {
		delete(r.seen, r.list[r.next])
		r.list[r.next] = hash
		r.next = (r.next + 1) % maxIdentities
	}
	r.seen[hash] = struct{}{}
	return false
}

func (r *eventReader) read(ctx context.Context, from Position) error {
	stream, err := r.source.open(ctx)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	r.created = info.Created
	last, err := r.begin(ctx, stream, from)
	if err != nil {
		return err
	}
	return r.consume(ctx, stream, last+1, 0, func(msg jetstream.Msg, sequence uint64) error {
		if !isEvent(msg) {
			return nil
		}
		e, err := parse(msg)
		if err != nil {
			return err
		}
		e.Position = r.position(sequence)
		if r.isRepeat(e) {
			return nil
		}
		if !r.yield(e, nil) {
			return errStopped
		}
		return nil
	})
}

// begin returns the sequence behind which to read, and remembers what came before it. It yields
// what is lost.
func (r *eventReader) begin(
	ctx context.Context, stream jetstream.Stream, from Position,
) (last uint64, err error) {
	if from == "" {
		return 0, nil
	}
	created, last, err := from.parse()
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	isOther := created != r.created.UnixNano() || last > state.LastSeq
	if isOther {
		last = 0
	}
	if isOther || !r.source.bucket && state.FirstSeq > last+1 {
		lost := &Event{Type: TypeLost, Attributes: map[string]string{}, Position: r.position(last)}
		if !r.yield(lost, nil) {
			return 0, errStopped
		}
	}
	first := max(state.FirstSeq, 1)
	if last > maxIdentities {
		first = max(first, last-maxIdentities)
	}
	if first > last {
		return last, nil
	}
	return last, r.consume(ctx, stream, first, last, func(msg jetstream.Msg, _ uint64) error {
		if e, err := parse(msg); err == nil && isEvent(msg) {
			r.isRepeat(e)
		}
		return nil
	})
}

// consume reads messages from a sequence on, up to last; 0 for without end.
func (r *eventReader) consume(
	ctx context.Context, stream jetstream.Stream, first, last uint64,
	take func(msg jetstream.Msg, sequence uint64) error,
) error {
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(first, 1),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.source, err)
	}
	if last > 0 && consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("%s: %w", r.source, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next()
		if err != nil {
			return fmt.Errorf("%s: %w", r.source, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("%s: %w", r.source, err)
		}
		if last > 0 && meta.Sequence.Stream > last {
			return nil
		}
		if err := take(msg, meta.Sequence.Stream); err != nil {
			return err
		}
		if last > 0 && (meta.Sequence.Stream == last || meta.NumPending == 0) {
			return nil
		}
	}
}

// position has the time of the stream's creation: another stream of the same name has the same
// sequences.
func (r *eventReader) position(sequence uint64) Position {
	return Position(strconv.FormatInt(r.created.UnixNano(), 36) + "." +
		strconv.FormatUint(sequence, 10))
}

func (p Position) parse() (created int64, sequence uint64, err error) {
	before, after, ok := strings.Cut(string(p), ".")
	created, createdErr := strconv.ParseInt(before, 36, 64)
	sequence, sequenceErr := strconv.ParseUint(after, 10, 64)
	if !ok || createdErr != nil || sequenceErr != nil {
		return 0, 0, fmt.Errorf("position %q is none that Events gave", string(p))
	}
	return created, sequence, nil
}
