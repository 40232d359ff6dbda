package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/compress"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Sink publishes events to Kafka. It is a sinks.Sink; see the package's documentation for what it
// promises.
type Sink struct {
	config  Config
	codec   compress.Compression
	encode  encoder
	log     *slog.Logger
	metrics *metrics
	scratch sync.Pool // *scratch
	fitted  fitted
	names   sync.Pool // *[]byte, topic names being built

	mu      sync.RWMutex
	cluster *cluster          // nil: not open
	topics  map[string]*topic // topics that events have gone to; entries stay until Close
	missing map[string]missing
	recall  recall
	pins    partitionPins
	blocked blocked
	spare   *producer // requested by Open as a check of the right to produce
	sweeps  sweeps
}

var (
	_ sinks.Sink     = (*Sink)(nil)
	_ sinks.Recaller = (*Sink)(nil)
	_ sinks.Blocker  = (*Sink)(nil)
	_ sinks.Outliner = (*Sink)(nil)
)

// New checks the configuration. It starts nothing and connects to nothing; its error has all
// problems.
func New(config Config) (*Sink, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("kafka sink: %w", err)
	}
	codec, _ := codecOf(c.Records.Compression) // withDefaults has checked it
	s := &Sink{
		config: c, codec: codec, encode: newEncoder(c.Records, c.Name), log: c.Log,
		metrics: newMetrics(c.Registerer),
		topics:  make(map[string]*topic), missing: make(map[string]missing),
	}
	s.scratch.New = func() any { return new(scratch) }
	s.names.New = func() any { return new([]byte) }
	return s, nil
}

// Open connects to a broker, checks that the sink may produce, and checks the topics it knows:
// after the first Open those that the templates name without an event. It may be called again;
// topics keep the number of partitions that they had. All its errors may be temporary, and name
// every broker that was tried.
func (s *Sink) Open(ctx context.Context) error {
	c := s.connected()
	fresh := c == nil
	if fresh {
		c = newCluster(s.config.Connection, s.metrics)
	}
	first, err := s.check(ctx, c)
	if err != nil {
		if fresh {
			c.close()
		}
		return err
	}
	s.mu.Lock()
	s.cluster, s.spare = c, first
	s.mu.Unlock()
	if err := s.checkTopics(ctx); err != nil {
		return err
	}
	s.log.Info("kafka sink is open", "brokers", strings.Join(c.addresses(), ","))
	return nil
}

// check reports whether the brokers answer and give out producer ids.
func (s *Sink) check(ctx context.Context, c *cluster) (*producer, error) {
	if _, err := c.refresh(ctx, ""); err != nil {
		return nil, sinkError(ctx, fmt.Errorf("connect to Kafka: %w", err))
	}
	id, epoch, err := c.newProducer(ctx)
	if err != nil {
		return nil, sinkError(ctx, fmt.Errorf("connect to Kafka: %w", err))
	}
	return &producer{id: id, epoch: epoch}, nil
}

// connected returns the open cluster, or nil.
func (s *Sink) connected() *cluster {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster
}

var errNotOpen = errors.New("kafka sink is not open")

// Order is sinks.ByLane: a lane is a partition.
func (s *Sink) Order() sinks.Order { return sinks.ByLane }

// Limits are the bounds of one record batch, and the configured concurrency.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{
		Messages:    1000,
		Bytes:       min(900<<10, s.config.Records.MaxBatchBytes),
		Concurrency: s.config.Concurrency,
	}
}

// Lane names the event's partition: "k8s.prod.pods/3". A new topic is looked up, and created where
// the configuration says so. The error for a missing topic says how to create it.
func (s *Sink) Lane(ctx context.Context, e *event.Event) (string, error) {
	l, err := s.laneOf(ctx, s.config.Topics.Events, e)
	if err != nil {
		return "", err
	}
	return l.name, nil
}

// Parts is the number of partitions that the topic of an event has, of those in use.
func (s *Sink) Parts(ctx context.Context, e *event.Event) (int, error) {
	t, err := s.topicOf(ctx, s.config.Topics.Events, e)
	if err != nil {
		return 0, err
	}
	return len(t.lanes), nil
}

// Publish stores the messages, all of one lane, in their order.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) {
	if len(batch) == 0 {
		return
	}
	l, err := s.laneOf(ctx, s.config.Topics.Events, batch[0].Event)
	if err != nil {
		sinks.Fail(batch, err)
		return
	}
	if s.config.View {
		s.publishView(ctx, l, batch)
		return
	}
	l.publish(ctx, batch, s.encode)
}

// newEncoder returns how the sink of a name turns events into records.
func newEncoder(r Records, name string) encoder {
	e := encoder{
		structured: r.Encoding == Structured, tombstones: r.Tombstones,
		eventTime: r.Timestamps == EventTime,
	}
	if name != "" {
		e.headers, e.count = appendString(appendString(nil, sinkHeader), name), 1
	}
	return e
}

// Close ends the connections and forgets the topics.
func (s *Sink) Close() error {
	s.mu.Lock()
	c := s.cluster
	s.cluster, s.spare = nil, nil
	clear(s.topics)
	clear(s.missing)
	s.recall.reset()
	s.mu.Unlock()
	if c != nil {
		c.close()
	}
	return nil
}

// nextProducer hands the producer that Open requested to the first lane that needs one, and
// requests others.
func (s *Sink) nextProducer(ctx context.Context, c *cluster) (producer, error) {
	s.mu.Lock()
	spare := s.spare
	s.spare = nil
	s.mu.Unlock()
	if spare != nil {
		return *spare, nil
	}
	id, epoch, err := c.newProducer(ctx)
	return producer{id: id, epoch: epoch}, err
}
