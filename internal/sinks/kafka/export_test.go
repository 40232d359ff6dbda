package kafka

import (
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
)

// Verdict is the word for what an error means.
func Verdict(err error) string { return sort(err).String() }

// BatchRecord is a record as the encoder takes it.
type BatchRecord struct {
	Time    time.Time
	Key     *string
	Value   []byte
	Headers []protocol.Header
}

// EncodeBatch makes a record batch, with the size prefix of a produce request.
func EncodeBatch(codec compress.Compression, producer int64, epoch int16, sequence int32, records ...BatchRecord) ([]byte, error) {
	var w batchWriter
	for _, r := range records {
		var headers []byte
		for _, h := range r.Headers {
			headers = appendString(appendString(headers, h.Key), h.Value)
		}
		w.add(r.Time, r.Key, r.Value, headers, len(r.Headers))
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

// OffsetsOf are the offsets of a topic's partitions in a position.
func OffsetsOf(saved []byte, topic string) (offsets []int64) {
	p, _ := readPosition(saved)
	for _, at := range p.Topics[topic] {
		offsets = append(offsets, at.offset)
	}
	return offsets
}
