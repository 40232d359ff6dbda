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

// The two ends of a partition's log, as ListOffsets has them.
const (
	earliest int64 = -2
	latest   int64 = -1
)

// offset gives an end of a partition's log (earliest or latest), or the first offset whose record bears a time, in milliseconds
// since 1970, or a later one: -1 when there is none.
func (c *cluster) offset(ctx context.Context, topic string, partition int, which int64) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &listoffsets.Request{
		ReplicaID: -1,
		Topics: []listoffsets.RequestTopic{{
			Topic:      topic,
			Partitions: []listoffsets.RequestPartition{{Partition: int32(partition), CurrentLeaderEpoch: c.epoch(topic, partition), Timestamp: which}},
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
	if p.ErrorCode != 0 {
		return 0, fmt.Errorf("ask for the end of %s/%d: %w", topic, partition, kafkago.Error(p.ErrorCode))
	}
	return p.Offset, nil
}

// page is one answer to a fetch request.
type page struct {
	batches []batchHead
	next    int64 // the offset behind the page; the asked one when the page is empty
}

// batchHead names a batch that lies in a log.
type batchHead struct {
	producer int64
	epoch    int16
	sequence int32
	offset   int64
	records  int32 // as it was written; compaction may have taken some
}

// fetch reads the heads of the batches from an offset on, at most a few MiB. each is called for every record, with the head of its batch but for the number of
// its records, unless it is nil; what it is given is valid during the call.
func (c *cluster) fetch(ctx context.Context, topic string, partition int, from int64, each func(batchHead, *protocol.Record) error) (page, error) {
	const maxBytes = 4 << 20
	epoch := c.epoch(topic, partition)
	res, err := c.askLeader(ctx, topic, partition, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: 100, MinBytes: 1, MaxBytes: maxBytes, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{
			Topic: topic,
			Partitions: []fetch.RequestPartition{{
				Partition: int32(partition), CurrentLeaderEpoch: epoch, FetchOffset: from, LogStartOffset: -1, PartitionMaxBytes: maxBytes,
			}},
		}},
	})
	if err != nil {
		return page{}, err
	}
	answer := res.(*fetch.Response)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return page{}, fmt.Errorf("%w to a fetch request", errMalformed)
	}
	p := answer.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return page{}, fmt.Errorf("read %s/%d from %d: %w", topic, partition, from, kafkago.Error(p.ErrorCode))
	}
	return readPage(p.RecordSet, from, each)
}

// readPage walks the batches of an answer.
func readPage(set protocol.RecordSet, from int64, each func(batchHead, *protocol.Record) error) (page, error) {
	found := page{next: from}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok {
		return found, nil // empty
	}
	for _, reader := range stream.Records {
		head := headOf(reader)
		last, err := readBatch(reader, head, from, each)
		if err != nil {
			return found, err
		}
		head.records = int32(last - head.offset + 1)
		found.next = max(found.next, last+1)
		found.batches = append(found.batches, head)
	}
	return found, nil
}

// headOf names a batch before its records are read. One of transactions' markers, or of an old form, has no producer.
func headOf(reader protocol.RecordReader) batchHead {
	switch b := reader.(type) {
	case *protocol.RecordBatch:
		return batchHead{producer: b.ProducerID, epoch: b.ProducerEpoch, sequence: b.BaseSequence, offset: b.BaseOffset}
	case interface{ Offset() int64 }:
		return batchHead{producer: -1, offset: b.Offset()}
	default:
		return batchHead{producer: -1}
	}
}

// readBatch gives the offset of the last record; of the batch, when compaction has taken all of them. A broker sends whole batches, so that the first may begin before
// what was asked for.
func readBatch(reader protocol.RecordReader, head batchHead, from int64, each func(batchHead, *protocol.Record) error) (last int64, err error) {
	last = head.offset
	for {
		record, err := reader.ReadRecord()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = record.Offset
		if each != nil && last >= from {
			err = each(head, record)
		}
		closeBytes(record.Key)
		closeBytes(record.Value)
		if err != nil {
			return last, err
		}
	}
}

func closeBytes(b protocol.Bytes) {
	if b != nil {
		_ = b.Close() // gives pages back to kafka-go's pool
	}
}
