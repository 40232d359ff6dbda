package kafkatest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

const benchLanes = 8

// BenchmarkBesidePlainClients sends the same events through the sink, kafka-go's Writer and
// franz-go: to a broker in this process that stores nothing, and to Apache Kafka. All wait for
// acks=all and have eight partitions in flight at once. With kfake the CPU is that of client and
// broker together, which does the same for all.
func BenchmarkBesidePlainClients(b *testing.B) {
	for _, broker := range []string{"kfake", "kafka"} {
		for _, size := range []int{2 << 10, 6 << 10} {
			for _, codec := range []string{"none", "lz4"} {
				for _, client := range []struct {
					name string
					new  func(b *testing.B, brokers []string, topic, codec string) publisher
				}{{"sink", newSinkPublisher}, {"writer", newWriterPublisher}, {"franz", newFranzPublisher}} {
					b.Run(fmt.Sprintf("%s/%dKB/%s/%s", broker, size>>10, codec, client.name), func(b *testing.B) {
						brokers, topic := benchTopic(b, broker)
						compare(b, client.new(b, brokers, topic, codec), size)
					})
				}
			}
		}
	}
}

// publisher sends the events of one partition and returns when they are acknowledged.
type publisher func(ctx context.Context, batch []*event.Event) error

func benchTopic(b *testing.B, kind string) (brokers []string, topic string) {
	topic = fmt.Sprintf("bench%d", destinations.Add(1))
	if kind == "kfake" {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(benchLanes, topic), kfake.BlackholeProduce())
		must(b, err)
		b.Cleanup(c.Close)
		return c.ListenAddrs(), topic
	}
	c := broker(b)
	_, err := admin(b, c).CreateTopic(b.Context(), benchLanes, 1, nil, topic)
	must(b, err)
	for ready := false; !ready; time.Sleep(50 * time.Millisecond) { // the brokers learn of it a moment later
		topics, err := admin(b, c).ListTopics(b.Context(), topic)
		must(b, err)
		ready = topics[topic].Err == nil && len(topics[topic].Partitions) == benchLanes
	}
	b.Cleanup(func() { _, _ = admin(b, c).DeleteTopic(context.Background(), topic) }) // it takes room, no more
	return c.Addresses(), topic
}

func newSinkPublisher(b *testing.B, brokers []string, topic, codec string) publisher {
	s, err := kafka.New(kafka.Options{
		Config:     testkit.WithDefaults(kafka.Config{Topic: topic, Compression: codec}),
		Common:     sinks.Common{Encoding: sinks.Binary},
		Connection: kafka.Connection{Brokers: brokers},
	})
	must(b, err)
	must(b, s.Open(b.Context()))
	b.Cleanup(func() { _ = s.Close() })
	pool := sync.Pool{New: func() any { return new([]*sinks.Message) }}
	return func(ctx context.Context, batch []*event.Event) error {
		messages := pool.Get().(*[]*sinks.Message)
		defer pool.Put(messages)
		for i, e := range batch {
			if i == len(*messages) {
				*messages = append(*messages, new(sinks.Message))
			}
			(*messages)[i].Event = e
		}
		s.Publish(ctx, (*messages)[:len(batch)])
		return (*messages)[len(batch)-1].Err
	}
}

func newWriterPublisher(b *testing.B, brokers []string, topic, codec string) publisher {
	w := &kafkago.Writer{
		Addr: kafkago.TCP(brokers...), Topic: topic, Balancer: kafkago.Murmur2Balancer{}, RequiredAcks: kafkago.RequireAll,
		BatchSize: 1000, BatchBytes: 960 << 10, BatchTimeout: time.Millisecond, Transport: &kafkago.Transport{},
		Compression: map[string]kafkago.Compression{"none": compress.None, "lz4": compress.Lz4}[codec],
	}
	b.Cleanup(func() { _ = w.Close() })
	return func(ctx context.Context, batch []*event.Event) error {
		messages := make([]kafkago.Message, len(batch))
		for i, e := range batch {
			messages[i] = kafkago.Message{Key: []byte(e.PartitionKey), Value: e.Data}
			e.Each(func(name, value string) {
				messages[i].Headers = append(messages[i].Headers, kafkago.Header{Key: "ce_" + name, Value: []byte(value)})
			})
		}
		return w.WriteMessages(ctx, messages...)
	}
}

func newFranzPublisher(b *testing.B, brokers []string, topic, codec string) publisher {
	c, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(960<<10),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression()}[codec]),
	)
	must(b, err)
	b.Cleanup(c.Close)
	return func(ctx context.Context, batch []*event.Event) error {
		records := make([]*kgo.Record, len(batch))
		for i, e := range batch {
			records[i] = &kgo.Record{Key: []byte(e.PartitionKey), Value: e.Data}
			e.Each(func(name, value string) {
				records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
			})
		}
		return c.ProduceSync(ctx, records...).FirstErr()
	}
}

// compare sends b.N events, eight batches at a time.
func compare(b *testing.B, publish publisher, size int) {
	batches := benchBatches(800_000/size, size)
	for _, batch := range batches { // connections, topics
		must(b, publish(b.Context(), batch[:1]))
	}
	var next atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	var work sync.WaitGroup
	for _, batch := range batches {
		work.Go(func() {
			for next.Add(int64(len(batch))) <= int64(b.N)+int64(len(batch)) {
				if err := publish(b.Context(), batch); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/event")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// benchBatches fills a batch for each partition, with payloads that compress about as a Kubernetes
// object does.
func benchBatches(messages, size int) (all [][]*event.Event) {
	byPartition := map[int][]*event.Event{}
	balancer, partitions := kafkago.Murmur2Balancer{}, []int{0, 1, 2, 3, 4, 5, 6, 7}
	for pod := 0; len(all) < benchLanes; pod++ {
		e := sinktest.NewEvent(fmt.Sprint("pod-", pod), 1, 10)
		p := balancer.Balance(kafkago.Message{Key: []byte(e.PartitionKey)}, partitions...)
		if len(byPartition[p]) == messages {
			continue
		}
		e.Data = payload(size)
		if byPartition[p] = append(byPartition[p], e); len(byPartition[p]) == messages {
			all = append(all, byPartition[p])
		}
	}
	return all
}

func payload(size int) []byte {
	var out strings.Builder
	out.WriteString(`{"kind":"Pod"`)
	for out.Len() < size {
		fmt.Fprintf(&out, `,"metadata":{"name":"web-%08x","uid":"%016x","labels":{"app.kubernetes.io/name":"web"}}`, rand.Uint32(), rand.Uint64())
	}
	return []byte(out.String()[:size-1] + "}")
}
