package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
)

// The two ends of a partition's log, as ListOffsets names them.
const (
	earliest int64 = -2
	latest   int64 = -1
)

// offset returns an end of a partition's log (earliest or latest), or the first offset whose record
// has a time, in milliseconds since 1970, or a later one: -1 when there is none.
func (c *cluster) offset(
	ctx context.Context, topic string, partition int, which int64,
) (int64, error) {
	return c.offsetOf(ctx, topic, partition, which, readAll)
}

// isolation is which records of transactions are read.
type isolation int8

const (
	readAll       isolation = 0
	readCommitted isolation = 1
)

// offsetOf is offset. With readCommitted the latest is that of the first open transaction.
func (c *cluster) offsetOf(
	ctx context.Context, topic string, partition int, which int64, level isolation,
) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &listoffsets.Request{
		ReplicaID: -1, IsolationLevel: int8(level),
		Topics: []listoffsets.RequestTopic{{
			Topic: topic,
			Partitions: []listoffsets.RequestPartition{{
				Partition:          int32(partition),
				CurrentLeaderEpoch: c.epoch(topic, partition), Timestamp: which,
			}},
		}},
	})
	if err != nil {
		return 0, err
	}
	answer := res.(*listoffsets.Response)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w to a list-offsets request", errMalformed)
	}
	p := answer.Topics[0].Partitions[0]
	switch {
	case answer.Topics[0].Topic != topic || int(p.Partition) != partition:
		return 0, fmt.Errorf("%w to a list-offsets request: it is about another partition",
			errMalformed)
	case p.ErrorCode != 0:
		return 0, fmt.Errorf("ask for the end of %s/%d: %w", topic, partition,
			kafkago.Error(p.ErrorCode))
	case which < 0 && p.Offset < 0:
		return 0, fmt.Errorf("%w to a list-offsets request: the log ends at %d", errMalformed,
			p.Offset)
	}
	return p.Offset, nil
}

// fetchAnswer is a fetch.Response of one partition, whose records are not decoded.
type fetchAnswer struct {
	fetch.Response // for ApiKey
	topic          string
	partition      int32
	code           int16
	aborted        []abortedTransaction // of these records; only with readCommitted
	records        []byte               // may be cut at the end
}

// abortedTransaction is one whose first record has an offset; a control batch ends it.
type abortedTransaction struct{ producer, first int64 }

// decode reads versions 4 to 11, which are not flexible.
func (a *fetchAnswer) decode(d *decoder) {
	since := func(version int16, size int) {
		if d.version >= version {
			d.number(size)
		}
	}
	since(1, 4) // throttle time
	since(7, 2) // error code of the session
	since(7, 4) // session id
	a.one(d)
	a.topic = string(d.next(d.length(2)))
	a.one(d)
	a.partition, a.code = int32(d.number(4)), int16(d.number(2))
	since(0, 8) // high watermark
	since(4, 8) // last stable offset
	since(5, 8) // log start offset
	if d.version >= 4 {
		const transaction = 16
		list := decoder{data: d.next(d.length(4) * transaction)}
		for len(list.data) > 0 {
			a.aborted = append(a.aborted, abortedTransaction{list.number(8), list.number(8)})
		}
	}
	since(11, 4) // preferred replica
	if size := d.length(4); d.err == nil {
		a.records = d.next(min(size, len(d.data)))
	}
}

func (a *fetchAnswer) one(d *decoder) {
	if n := d.length(4); n != 1 {
		d.fail("it is about %d topics or partitions", n)
	}
}

// page is one answer to a fetch request.
type page struct {
	batches []logBatch
	aborted []abortedTransaction
	next    int64 // the offset behind the page; the requested one when the page is empty
}

// fetch reads the heads of the batches from an offset on. An answer has at most a few MiB, unless
// its first batch is larger.
func (c *cluster) fetch(
	ctx context.Context, topic string, partition int, from int64, level isolation,
) (page, error) {
	const maxBytes = 4 << 20
	epoch := c.epoch(topic, partition)
	res, err := c.askLeader(ctx, topic, partition, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: 100, MinBytes: 1, MaxBytes: maxBytes, SessionEpoch: -1,
		IsolationLevel: int8(level),
		Topics: []fetch.RequestTopic{{
			Topic: topic,
			Partitions: []fetch.RequestPartition{{
				Partition: int32(partition), CurrentLeaderEpoch: epoch, FetchOffset: from,
				LogStartOffset: -1, PartitionMaxBytes: maxBytes,
			}},
		}},
	})
	if err != nil {
		return page{}, err
	}
	answer := res.(*fetchAnswer)
	switch {
	case answer.topic != topic || int(answer.partition) != partition:
		return page{}, fmt.Errorf("%w to a fetch request: it is about another partition",
			errMalformed)
	case answer.code != 0:
		return page{}, fmt.Errorf("read %s/%d from %d: %w", topic, partition, from,
			needing("Read on the topic", kafkago.Error(answer.code)))
	}
	p, err := readPage(answer.records, from)
	p.aborted = answer.aborted
	return p, err
}

// maxPageBatches bounds the batches of an answer that are read; the next page begins behind them.
const maxPageBatches = 50_000

// readPage reads the heads of the batches of an answer. A broker sends whole batches, so the first
// may begin before the requested offset, and cuts the last. The sink may cut the first too, when
// that is very large: then its records can't be read.
func readPage(records []byte, from int64) (p page, err error) {
	defer recoverMalformed(&err)
	p = page{next: from}
	for len(records) > 0 && len(p.batches) < maxPageBatches {
		b, rest, err := readBatch(records)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF), err == nil && b.cut && p.next > from:
			return p, nil
		case err != nil && p.next == from:
			return p, err
		case err != nil:
			return p, nil // it is the first of the next page
		}
		if b.next() > p.next {
			p.next = b.next()
			p.batches = append(p.batches, b)
		}
		records = rest
	}
	return p, nil
}

var _ protocol.Message = (*fetchAnswer)(nil)
