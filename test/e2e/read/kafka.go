package read

import (
	"context"
	"fmt"
	"strings"

	kafkabinding "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka reads all topics whose names begin with a prefix. One goroutine uses it.
type Kafka struct {
	Brokers []string
	Prefix  string

	events []Event
	next   map[string]map[int32]int64 // offset of the first record that was not read
}

// Refresh reads what has come and gives everything. Events of one lane are in its order.
func (r *Kafka) Refresh(ctx context.Context) ([]Event, error) {
	ends, err := r.ends(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	begin := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if from := r.next[o.Topic][o.Partition]; from < o.Offset {
			set(&begin, o.Topic, o.Partition, kgo.NewOffset().At(from))
		}
	})
	if len(begin) == 0 {
		return r.events, nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(r.Brokers...), kgo.ConsumePartitions(begin),
		kgo.DisableFetchSessions()) // with them, Close has a data race in franz-go
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for !r.reached(ends) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		if err := r.take(ctx, fetches, ends); err != nil {
			return nil, err
		}
	}
	return r.events, nil
}

// ends are where the partitions end.
func (r *Kafka) ends(ctx context.Context) (kadm.ListedOffsets, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.Brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, r.Prefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 { // no names would be all topics
		return nil, nil
	}
	ends, err := admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, err
	}
	return ends, ends.Error()
}

func (r *Kafka) reached(ends kadm.ListedOffsets) bool {
	reached := true
	ends.Each(func(o kadm.ListedOffset) {
		reached = reached && r.next[o.Topic][o.Partition] >= o.Offset
	})
	return reached
}

func (r *Kafka) take(ctx context.Context, fetches kgo.Fetches, ends kadm.ListedOffsets) error {
	for record := range fetches.RecordsAll() {
		set(&r.next, record.Topic, record.Partition, record.Offset+1)
		if record.Value == nil && len(record.Headers) == 0 {
			continue // a tombstone, which is no event
		}
		e, err := fromKafka(ctx, record)
		if err != nil {
			return err
		}
		e.Partitions = len(ends[record.Topic])
		r.events = append(r.events, e)
	}
	return nil
}

func fromKafka(ctx context.Context, record *kgo.Record) (Event, error) {
	e := Event{
		Place: uint64(record.Offset), At: record.Timestamp, Lane: fmt.Sprintf("%s/%d", record.Topic, record.Partition),
		Topic: record.Topic, Partition: record.Partition, Key: string(record.Key),
	}
	headers := map[string][]byte{}
	for _, h := range record.Headers {
		headers[h.Key] = h.Value
	}
	return e, e.decode(ctx, kafkabinding.NewMessage(record.Value, string(headers["content-type"]), headers))
}

// set enters a value in a map of maps.
func set[V any](m *map[string]map[int32]V, topic string, partition int32, value V) {
	if *m == nil {
		*m = map[string]map[int32]V{}
	}
	if (*m)[topic] == nil {
		(*m)[topic] = map[int32]V{}
	}
	(*m)[topic][partition] = value
}
