package client

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// View are compacted topics that a sink of Kafka with view: true writes. The connection stays the
// caller's: what reads the topics is made of its options.
func View(connection *kgo.Client, topics ...string) Source {
	return Source{backend: &kafka{connection: connection, topics: topics, isView: true}, isState: true}
}

// Topics are topics that a sink of Kafka writes, with a history. Their payload is object, change or
// metadata where informers read them. The connection stays the caller's, as for View.
//
// Each partition has an order of its own, and its own copy of each event about an informer. For
// informers all events of a resource are in one topic: a template of topics by namespace or by name
// leaves no place where a list ends.
func Topics(connection *kgo.Client, topics ...string) Source {
	return Source{backend: &kafka{connection: connection, topics: topics}}
}

// kafka reads topics.
type kafka struct {
	connection *kgo.Client
	topics     []string
	isView     bool
}

func (s *kafka) String() string {
	return map[bool]string{true: "view ", false: "topics "}[s.isView] + strings.Join(s.topics, ", ")
}

func (s *kafka) extents(ctx context.Context) (map[partition]extent, error) {
	admin := kadm.NewClient(s.connection)
	topics, err := admin.ListTopics(ctx, s.topics...)
	if err != nil {
		return nil, err
	}
	first, err := admin.ListStartOffsets(ctx, s.topics...)
	if err != nil {
		return nil, err
	}
	next, err := admin.ListEndOffsets(ctx, s.topics...)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(topics.Error(), first.Error(), next.Error()); err != nil {
		return nil, err
	}
	found := map[partition]extent{}
	for _, topic := range topics {
		for number := range topic.Partitions {
			begin, known := first.Lookup(topic.Topic, number)
			end, ok := next.Lookup(topic.Topic, number)
			if !known || !ok {
				return nil, fmt.Errorf("topic %s: no offsets of partition %d", topic.Topic, number)
			}
			found[partition{topic.Topic, number}] = extent{
				id: hex.EncodeToString(topic.ID[:]), first: begin.Offset, next: end.Offset,
			}
		}
	}
	return found, nil
}

func (s *kafka) open(
	ctx context.Context, from readOffsets, now map[partition]extent,
) (reader, error) {
	if err := s.isCompacted(ctx); err != nil {
		return nil, err
	}
	r := &kafkaReader{behind: map[partition]int64{}}
	offsets := map[string]map[int32]kgo.Offset{}
	for p, at := range from {
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.Offset{}
		}
		offset := kgo.NewOffset().AtStart()
		if at.next > 0 {
			offset = kgo.NewOffset().At(at.next)
		}
		offsets[p.topic][p.number] = offset
		if now[p].next > max(at.next, now[p].first) {
			r.behind[p] = now[p].next
		}
	}
	// With sessions, Close has a data race in franz-go: it reads the id that a fetch sets.
	consumer, err := kgo.NewClient(append(s.connection.Opts(), kgo.DisableFetchSessions(),
		kgo.ConsumePartitions(offsets), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	r.consumer = consumer
	return r, err
}

// isCompacted refuses a view that is none: the objects that did not change would vanish from it. A
// user who may not see the settings of topics has none to check.
func (s *kafka) isCompacted(ctx context.Context) error {
	if !s.isView {
		return nil
	}
	configs, err := kadm.NewClient(s.connection).DescribeTopicConfigs(ctx, s.topics...)
	if err != nil {
		return err
	}
	for _, topic := range configs {
		for _, setting := range topic.Configs {
			if setting.Key == "cleanup.policy" && setting.MaybeValue() != "compact" {
				return fmt.Errorf("topic %s is no view: its cleanup.policy is %s and not compact; read "+
					"it with Topics", topic.Name, setting.MaybeValue())
			}
		}
	}
	return nil
}

type kafkaReader struct {
	consumer *kgo.Client
	records  []*kgo.Record       // received, and not yet returned
	behind   map[partition]int64 // up to where there were messages that were not returned yet
}

func (r *kafkaReader) atEnd() bool { return len(r.behind) == 0 }

func (r *kafkaReader) close() { r.consumer.Close() }

func (r *kafkaReader) next(ctx context.Context) (*message, error) {
	if len(r.records) == 0 {
		const most = 1000
		wait, stop := context.WithTimeout(ctx, quiet)
		fetched := r.consumer.PollRecords(wait, most)
		stop()
		for _, failed := range fetched.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) || ctx.Err() != nil {
				return nil, fmt.Errorf("topic %s, partition %d: %w", failed.Topic, failed.Partition,
					failed.Err)
			}
		}
		if r.records = fetched.Records(); len(r.records) == 0 {
			return nil, nil
		}
	}
	record := r.records[0]
	r.records = r.records[1:]
	m := &message{
		partition: partition{record.Topic, record.Partition}, offset: record.Offset,
		subject: string(record.Key),
	}
	if until, ok := r.behind[m.partition]; ok && record.Offset+1 >= until {
		delete(r.behind, m.partition)
	}
	if read := fromKafka(record); read.isEvent() {
		if m.event, m.err = read.event(); m.err != nil {
			m.err = fmt.Errorf("topic %s, partition %d, offset %d: %w", record.Topic, record.Partition,
				record.Offset, m.err)
		}
	} else if record.Value == nil {
		m.removed = removedBy(m.subject)
	}
	return m, nil
}

// removedBy returns what a tombstone removes: the key is <resource.group>/<namespace>/<name>.
func removedBy(key string) *removal {
	of, object, ok := strings.Cut(key, "/")
	resource, group, _ := strings.Cut(of, ".")
	if !ok || resource == "" || of == "informers" {
		return nil
	}
	return &removal{schema.GroupResource{Group: group, Resource: resource}, object}
}
