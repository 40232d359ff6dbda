package kafka

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// produce sends a batch to its partition's leader and returns the offset of its first record.
func (c *cluster) produce(
	ctx context.Context, topic string, partition int, batch []byte,
) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &rawproduce.Request{
		Acks: -1,
		// the broker's answer comes before we stop waiting for it
		Timeout: int32(c.timeout.Milliseconds() * 9 / 10),
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
	switch {
	case answer.Topics[0].Topic != topic || int(p.Partition) != partition:
		return 0, fmt.Errorf("%w to a produce request: it is about another partition", errMalformed)
	case p.ErrorCode != 0:
		return p.BaseOffset, brokerError(p.ErrorCode, produceDetail(p))
	case p.BaseOffset > math.MaxInt64/2:
		return 0, fmt.Errorf("%w to a produce request: offset %d", errMalformed, p.BaseOffset)
	}
	return p.BaseOffset, nil
}

// produceDetail is what the broker reported besides the code.
func produceDetail(p produce.ResponsePartition) string {
	said := []string{}
	if p.ErrorMessage != "" {
		said = append(said, p.ErrorMessage)
	}
	for _, r := range p.RecordErrors {
		said = append(said, r.BatchIndexErrorMessage)
	}
	return clip(strings.Join(said, "; "))
}

// clip bounds a broker's text: it goes into logs and dead letters.
func clip(text string) string {
	const longest = 1024
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}

// brokerError is a broker's error code with its text.
func brokerError(code int16, detail string) error {
	if detail == "" {
		return kafkago.Error(code)
	}
	return fmt.Errorf("%w (%s)", kafkago.Error(code), detail)
}

// newProducer asks any broker for an unused producer id. Without a transactional id any broker
// returns one; kafka-go's Client would look for a transaction coordinator first, which needs rights
// that the sink does not.
func (c *cluster) newProducer(ctx context.Context) (id int64, epoch int16, err error) {
	res, err := c.askAny(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return 0, 0, err
	}
	answer := res.(*initproducerid.Response)
	if answer.ErrorCode != 0 {
		return 0, 0, fmt.Errorf("get a producer id: %w", kafkago.Error(answer.ErrorCode))
	}
	if answer.ProducerID < 0 || answer.ProducerEpoch < 0 {
		return 0, 0, fmt.Errorf("%w: producer id %d, epoch %d", errMalformed, answer.ProducerID,
			answer.ProducerEpoch)
	}
	return answer.ProducerID, answer.ProducerEpoch, nil
}

// describe reads the settings of a topic. It fails when the bridge's user may not.
func (c *cluster) describe(ctx context.Context, topic string) (map[string]string, error) {
	const topicResource = 2
	res, err := c.askController(ctx, &describeconfigs.Request{
		Resources: []describeconfigs.RequestResource{{
			ResourceType: topicResource,
			ResourceName: topic,
		}},
	})
	if err != nil {
		return nil, err
	}
	answer := res.(*describeconfigs.Response)
	if len(answer.Resources) != 1 || answer.Resources[0].ResourceName != topic {
		return nil, fmt.Errorf("%w to a describe-configs request", errMalformed)
	}
	r := answer.Resources[0]
	if r.ErrorCode != 0 {
		return nil, needing("DescribeConfigs on the topic",
			brokerError(r.ErrorCode, clip(r.ErrorMessage)))
	}
	settings := make(map[string]string, len(r.ConfigEntries))
	for _, entry := range r.ConfigEntries {
		settings[entry.ConfigName] = entry.ConfigValue
	}
	return settings, nil
}

// create creates a topic. It is no error that the topic exists.
func (c *cluster) create(ctx context.Context, topic string, how *CreateTopics) error {
	request := createtopics.RequestTopic{
		Name: topic, NumPartitions: int32(how.Partitions),
		ReplicationFactor: int16(how.ReplicationFactor),
	}
	for name, value := range how.Config {
		request.Configs = append(request.Configs, createtopics.RequestConfig{
			Name:  name,
			Value: value,
		})
	}
	res, err := c.askController(ctx, &createtopics.Request{
		Topics:    []createtopics.RequestTopic{request},
		TimeoutMs: int32(c.timeout / time.Millisecond * 9 / 10),
	})
	if err != nil {
		return err
	}
	answer := res.(*createtopics.Response)
	if len(answer.Topics) != 1 || answer.Topics[0].Name != topic {
		return fmt.Errorf("%w to a create-topics request", errMalformed)
	}
	t := answer.Topics[0]
	if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
		return brokerError(t.ErrorCode, clip(t.ErrorMessage))
	}
	return nil
}
