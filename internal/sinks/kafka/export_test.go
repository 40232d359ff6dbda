package kafka

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
)

// Hooks for the tests of the parts that have no door of their own.

var (
	Murmur2       = murmur2
	PartitionOf   = partitionOf
	SequenceAfter = sequenceAfter
	NoLeader      = errNoLeader
	CallerGone    = errCallerGone
	Unusable      = errUnusable
	Malformed     = errMalformed

	CheckChallenge = checkChallenge
)

// Verdict is the word for what an error means.
func Outcome(err error) string { return classify(err).String() }

// AnswerKinds are the requests whose answers can be decoded.
func AnswerKinds() []protocol.ApiKey { return slices.Sorted(maps.Keys(answers)) }

// DecodeAnswer gives what the lists of an answer take in memory. It panics where the decoder does.
func DecodeAnswer(key protocol.ApiKey, version int16, data []byte) (size int) {
	d := &decoder{data: data, version: version, memory: maxListMemory}
	d.answer(answers[key]())
	return maxListMemory - d.memory
}

// DecodePanic gives the error of a decoder that panics.
func DecodePanic() error { return decodeAnswer(nil, 0, nil) }

// RecordPanic gives the error of a batch at whose first record something panics.
func RecordPanic(batch []byte) error {
	p, err := readPage(batch, 0)
	if err != nil {
		return err
	}
	return p.batches[0].each(0, func(*Record) { panic("a bug") })
}

// ReadLog gives the ids of a log's part that look like a sink's own, and the offset behind it.
func ReadLog(data []byte, from int64) (ids []string, next int64) {
	s := new(Sink)
	p, _ := readPage(data, from)
	for _, b := range p.batches {
		if b.isForeign() {
			continue
		}
		_ = b.each(from, func(r *Record) {
			if id := s.messageID(r); id != "" {
				ids = append(ids, id)
			}
		})
	}
	return ids, p.next
}

// BatchRecord is a record as the encoder takes it.
type BatchRecord struct {
	Time    time.Time
	Key     *string
	Value   []byte
	Headers []protocol.Header
}

// EncodeBatch makes a record batch, with the size prefix of a produce request.
func EncodeBatch(
	codec compress.Compression, producer int64, epoch int16, sequence int32, records ...BatchRecord,
) ([]byte, error) {
	var w batchWriter
	for _, r := range records {
		var headers []byte
		for _, h := range r.Headers {
			headers = appendString(appendString(headers, h.Key), h.Value)
		}
		w.appendRecord(r.Time, r.Key, r.Value, headers, len(r.Headers))
	}
	batch, err := w.finish(nil, codec)
	if err == nil {
		stamp(batch, producer, epoch, sequence)
	}
	return batch, err
}

// PlacesOf is of how many partitions a position has places, by topic.
func PlacesOf(saved []byte) map[string]int {
	p, _ := readPosition(saved)
	count := map[string]int{}
	for name, places := range p.Topics {
		count[name] = len(places)
	}
	return count
}

// TopicsOf are all topics of a position, with places or without.
func TopicsOf(saved []byte) []string {
	p, _ := readPosition(saved)
	names := slices.AppendSeq(slices.Collect(maps.Keys(p.Topics)), maps.Keys(p.Partitions))
	slices.Sort(names)
	return slices.Compact(names)
}

// OffsetsOf are the offsets of a topic's partitions in a position.
func OffsetsOf(saved []byte, topic string) (offsets []int64) {
	p, _ := readPosition(saved)
	for _, at := range p.Topics[topic] {
		offsets = append(offsets, at.offset)
	}
	return offsets
}

// Sweeps is how many comparisons with a list will be continued.
func (s *Sink) Sweeps() int { return reflect.ValueOf(&s.view.sweeps).Elem().FieldByName("byID").Len() }

// Missing is how many topics are remembered that are not there.
func (s *Sink) Missing() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.missing)
}

// Explained is what a person reads of a broker's error code.
func Explained(code int16) string { return explain(brokerError(code, "")).Error() }

// CompareNow lets the next round of a view begin.
func (s *Sink) CompareNow() { s.view.rows.began = time.Time{} }
