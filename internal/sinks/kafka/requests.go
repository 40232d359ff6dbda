package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

var errMalformed = errors.New("malformed answer")

// produce sends a batch to its partition's leader and gives the offset of its first record.
func (c *cluster) produce(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &rawproduce.Request{
		Acks:    -1,
		Timeout: int32(c.timeout.Milliseconds() * 9 / 10), // so that the broker's answer comes before we stop waiting for it
		Topics: []rawproduce.RequestTopic{{
			Topic: topic,
			Partitions: []rawproduce.RequestPartition{{
				Partition: int32(partition),
				RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
			}},
		}},
	})
	if err != nil {
		return 0, err
	}
	answer := res.(*produce.Response)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w to a produce request", errMalformed)
	}
	p := answer.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return p.BaseOffset, answered(p.ErrorCode, produceDetail(p))
	}
	return p.BaseOffset, nil
}

// produceDetail is what the broker said besides the code.
func produceDetail(p produce.ResponsePartition) string {
	said := []string{}
	if p.ErrorMessage != "" {
		said = append(said, p.ErrorMessage)
	}
	for _, r := range p.RecordErrors {
		said = append(said, r.BatchIndexErrorMessage)
	}
	return strings.Join(said, "; ")
}

// answered is a broker's error code with what it said about it.
func answered(code int16, detail string) error {
	if detail == "" {
		return kafkago.Error(code)
	}
	return fmt.Errorf("%w (%s)", kafkago.Error(code), detail)
}

// newProducer asks any broker for a producer id that nobody has had before. Without a transactional id any broker gives
// one; kafka-go's Client would look for a transaction coordinator first, which needs rights that the sink does not.
func (c *cluster) newProducer(ctx context.Context) (id int64, epoch int16, err error) {
	res, err := c.askAny(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return 0, 0, err
	}
	answer := res.(*initproducerid.Response)
	if answer.ErrorCode != 0 {
		return 0, 0, fmt.Errorf("get a producer id: %w", kafkago.Error(answer.ErrorCode))
	}
	return answer.ProducerID, answer.ProducerEpoch, nil
}

// The two ends of a partition's log, as ListOffsets has them.
const (
	earliest int64 = -2
	latest   int64 = -1
)

// offset gives an end of a partition's log: earliest or latest.
func (c *cluster) offset(ctx context.Context, topic string, partition int, which int64) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &listoffsets.Request{
		ReplicaID: -1,
		Topics: []listoffsets.RequestTopic{{
			Topic:      topic,
			Partitions: []listoffsets.RequestPartition{{Partition: int32(partition), CurrentLeaderEpoch: -1, Timestamp: which}},
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
}

// fetch reads the heads of the batches from an offset on, at most a few MiB.
func (c *cluster) fetch(ctx context.Context, topic string, partition int, from int64) (page, error) {
	const maxBytes = 4 << 20
	res, err := c.askLeader(ctx, topic, partition, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: 100, MinBytes: 1, MaxBytes: maxBytes, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{
			Topic: topic,
			Partitions: []fetch.RequestPartition{{
				Partition: int32(partition), CurrentLeaderEpoch: -1, FetchOffset: from, LogStartOffset: -1, PartitionMaxBytes: maxBytes,
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
	return readPage(p.RecordSet, from)
}

// readPage walks the batches of an answer.
func readPage(set protocol.RecordSet, from int64) (page, error) {
	found := page{next: from}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok {
		return found, nil // empty
	}
	for _, reader := range stream.Records {
		last, err := lastOffset(reader)
		if err != nil {
			return found, err
		}
		found.next = max(found.next, last+1)
		if b, ok := reader.(*protocol.RecordBatch); ok {
			found.batches = append(found.batches, batchHead{b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.BaseOffset})
		}
	}
	return found, nil
}

func lastOffset(reader protocol.RecordReader) (last int64, err error) {
	last = -1
	for {
		record, err := reader.ReadRecord()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = record.Offset
		closeBytes(record.Key)
		closeBytes(record.Value)
	}
}

func closeBytes(b protocol.Bytes) {
	if b != nil {
		_ = b.Close() // gives pages back to kafka-go's pool
	}
}

// describe reads the settings of a topic. It fails where the bridge's user may not.
func (c *cluster) describe(ctx context.Context, topic string) (map[string]string, error) {
	const topicResource = 2
	res, err := c.askController(ctx, &describeconfigs.Request{
		Resources: []describeconfigs.RequestResource{{ResourceType: topicResource, ResourceName: topic}},
	})
	if err != nil {
		return nil, err
	}
	answer := res.(*describeconfigs.Response)
	if len(answer.Resources) != 1 {
		return nil, fmt.Errorf("%w to a describe-configs request", errMalformed)
	}
	r := answer.Resources[0]
	if r.ErrorCode != 0 {
		return nil, answered(r.ErrorCode, r.ErrorMessage)
	}
	settings := make(map[string]string, len(r.ConfigEntries))
	for _, entry := range r.ConfigEntries {
		settings[entry.ConfigName] = entry.ConfigValue
	}
	return settings, nil
}

// create makes a topic. That it exists already is no error.
func (c *cluster) create(ctx context.Context, topic string, how *CreateTopics) error {
	request := createtopics.RequestTopic{
		Name: topic, NumPartitions: int32(how.Partitions), ReplicationFactor: int16(how.ReplicationFactor),
	}
	for name, value := range how.Config {
		request.Configs = append(request.Configs, createtopics.RequestConfig{Name: name, Value: value})
	}
	res, err := c.askController(ctx, &createtopics.Request{
		Topics:    []createtopics.RequestTopic{request},
		TimeoutMs: int32(c.timeout / time.Millisecond * 9 / 10),
	})
	if err != nil {
		return err
	}
	answer := res.(*createtopics.Response)
	if len(answer.Topics) != 1 {
		return fmt.Errorf("%w to a create-topics request", errMalformed)
	}
	t := answer.Topics[0]
	if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
		return answered(t.ErrorCode, t.ErrorMessage)
	}
	return nil
}
