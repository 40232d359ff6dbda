package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Sink publishes events to Kafka. It is a sinks.Sink; see the package's documentation for what it
// promises.
type Sink struct {
	config  Options
	topic   *event.Template
	letters *event.Template // of the dead letters' topic; nil for none
	codec   compress.Compression
	encode  encoder
	log     *slog.Logger
	metrics *metrics
	scratch sync.Pool // *scratch
	fitted  lastEncoded
	names   sync.Pool // *[]byte, topic names being built

	mu       sync.RWMutex
	cluster  *cluster          // nil: not open
	topics   map[string]*topic // topics that events have gone to; entries stay until Close
	missing  map[string]missingTopics
	losses   sinks.Losses
	readBack readBackState
	pins     partitionPins
	blocked  blockedLanes
	spare    *producer // requested by Open as a check of the right to produce
	view     view
}

var (
	_ sinks.Sink       = (*Sink)(nil)
	_ sinks.ReadBacker = (*Sink)(nil)
	_ sinks.Blocker    = (*Sink)(nil)
	_ sinks.Outliner   = (*Sink)(nil)
)

// New checks the configuration. It starts nothing and connects to nothing; its error has all
// problems.
func New(o Options) (*Sink, error) {
	events, eventsErr := event.ParseTemplate(o.Topic)
	var letters *event.Template
	var lettersErr error
	if o.DeadLetterTopic != "" {
		letters, lettersErr = event.ParseTemplate(o.DeadLetterTopic)
	}
	if err := errors.Join(eventsErr, lettersErr, o.check(events, letters)); err != nil {
		return nil, fmt.Errorf("kafka sink: %w", err)
	}
	codec, _ := codecOf(o.Compression) // check has reported it
	s := &Sink{
		config: o, topic: events, letters: letters, codec: codec,
		encode: newEncoder(&o), log: o.Log,
		metrics: newMetrics(o.Registry),
		topics:  make(map[string]*topic), missing: make(map[string]missingTopics),
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
		Bytes:       min(900<<10, s.config.MaxBatchBytes),
		Concurrency: s.config.Concurrency,
	}
}

// Lane names the event's partition: "k8s.prod.pods/3". A new topic is looked up, and created where
// the configuration says so. The error for a missing topic says how to create it.
func (s *Sink) Lane(ctx context.Context, e *event.Event) (string, error) {
	l, err := s.laneOf(ctx, s.topic, e)
	if err != nil {
		return "", err
	}
	return l.name, nil
}

// Parts is the number of partitions that the topic of an event has, of those in use.
func (s *Sink) Parts(ctx context.Context, e *event.Event) (int, error) {
	t, err := s.topicOf(ctx, s.topic, e)
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
	t, err := s.topicOf(ctx, s.topic, batch[0].Event)
	if err != nil {
		sinks.Fail(batch, err)
		return
	}
	if unusable := t.unusable.Load(); unusable != nil {
		sinks.Fail(batch, unusable)
		return
	}
	l := t.laneOf(batch[0].Event)
	if s.config.View {
		s.publishView(ctx, l, batch)
		return
	}
	l.publish(ctx, batch, s.encode)
}

// newEncoder returns how the sink turns events into records.
func newEncoder(o *Options) encoder {
	e := encoder{
		encoding: o.Encoding, tombstones: o.Tombstones, eventTime: o.Timestamps == EventTime,
	}
	if mediaType := sinks.DocumentType(o.Encoding); mediaType != "" {
		e.mediaType = mediaType + "; charset=UTF-8"
	}
	if o.Name != "" {
		e.headers, e.count = appendString(appendString(nil, sinkHeader), o.Name), 1
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
	s.readBack.reset()
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

// Check reports whether Open would succeed and these topics can be found. It changes nothing.
// connect is why the brokers can't be used; topics has an error for each topic that is not as it
// must be. A topic that is missing and would be created is no problem. Settings that may lose
// events are warned of. Whether the user may write to a topic is not checked: only a write shows
// that. The sink must not be open.
func (s *Sink) Check(ctx context.Context, names []string) (topics []error, connect error) {
	c := newCluster(s.config.Connection, s.metrics)
	defer c.close()
	if err := s.checkPatiently(ctx, c); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("connect to Kafka: no answer from %s: %w",
				strings.Join(s.config.Connection.Brokers, ", "), err)
		}
		return nil, err
	}
	for _, name := range names {
		if err := s.checkOneTopic(ctx, c, name); err != nil {
			topics = append(topics, sinkError(ctx, err))
		}
	}
	return topics, nil
}

// checkPatiently retries for a while when a broker answers that it can't serve yet: one that has
// just started knows of no producers for a second or two.
func (s *Sink) checkPatiently(ctx context.Context, c *cluster) error {
	for began := time.Now(); ; {
		_, err := s.check(ctx, c)
		code, answered := errors.AsType[kafkago.Error](err)
		if !answered || !code.Temporary() || time.Since(began) > patience ||
			ratelimit.Sleep(ctx, 200*time.Millisecond) != nil {
			return err
		}
	}
}

// checkOneTopic is resolveTopic without creating anything.
func (s *Sink) checkOneTopic(ctx context.Context, c *cluster, name string) error {
	if err := checkTopic(name); err != nil {
		return err
	}
	l, err := c.refresh(ctx, name)
	switch {
	case errors.Is(err, kafkago.UnknownTopicOrPartition) && s.config.CreateTopics != nil:
		return nil
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		return &noTopicError{name}
	case err != nil:
		return err
	}
	_, _, err = s.checkSettings(ctx, c, name, l, s.config.View)
	return err
}

var _ sinks.Sizer = (*Sink)(nil)

// maxUsualOverhead is more than what a record takes besides its payload, unless a header is
// unusually long.
const maxUsualOverhead = 8 << 10

// Fits returns nil when the topic accepts the event in a batch of its own, compressed as it would
// be: max.message.bytes is about that. Where the setting can't be read, and for topics not yet
// looked up, Fits returns nil and the broker decides.
func (s *Sink) Fits(e *event.Event) error {
	limit := s.limitOf(e)
	most := limit.Load()
	if most <= 0 || len(e.Data)+maxUsualOverhead < most {
		return nil
	}
	work := s.scratch.Get().(*scratch)
	defer s.scratch.Put(work)
	work.writer.reset()
	s.encode.put(&work.writer, e, time.Now())
	size := work.writer.size()
	if size <= most {
		return nil
	}
	bytes, err := work.writer.finish(work.bytes[:0], s.codec)
	if err != nil {
		return asRefused(fmt.Errorf("compress: %w", err))
	}
	work.bytes = bytes
	if compressed := len(bytes) - sizePrefix; compressed > most {
		limit.Exceed()
		return asRefused(fmt.Errorf("%w: a batch of %d bytes, %d before compression, the topic's "+
			"max.message.bytes is %d", sinks.ErrTooLarge, compressed, size, most))
	}
	if size <= maxRequest {
		s.fitted.keep(e, bytes, size, work.writer.count)
		work.bytes = nil
	}
	return nil
}

// limitOf returns the limit of the topic of an event; nil for a topic that was not looked up.
func (s *Sink) limitOf(e *event.Event) *sinks.SizeLimit {
	name := s.names.Get().(*[]byte)
	defer s.names.Put(name)
	*name = s.topic.Append((*name)[:0], e, event.AppendTopicPart)
	t, err := s.lookupTopic(*name)
	if err != nil || t == nil {
		return nil
	}
	return t.limit
}

// asTooLarge marks a refusal for its size as sinks.ErrTooLarge, whatever code the broker uses.
func asTooLarge(err error) error {
	if isTooLarge(err) {
		return fmt.Errorf("%w: %w", sinks.ErrTooLarge, err)
	}
	return err
}

// metrics of one sink.
type metrics struct {
	records     *metric.Counter
	bytes       *metric.Counter
	batches     *metric.Counters // by outcome
	resends     *metric.Counters // by reason
	recoveries  *metric.Counters // by result
	damaged     *metric.Counter
	connections *metric.Counter
	seconds     prometheus.Histogram
	waiting     *metric.Gauge
	unused      *metric.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := metric.With(r)
	return &metrics{
		records: f.Counter("bridge_kafka_records_total",
			"Records that brokers have acknowledged, tombstones among them."),
		bytes: f.Counter("bridge_kafka_bytes_total",
			"Bytes of acknowledged record batches, after compression."),
		batches: f.Counters("bridge_kafka_batches_total",
			"Record batches by their result: stored, refused, unanswered.",
			"outcome", "stored", "refused", "unanswered"),
		resends: f.Counters("bridge_kafka_resends_total",
			"Requests sent again, by the reason.",
			// and error codes of brokers
			"reason", "no leader", "not connected", "timeout", "connection lost"),
		recoveries: f.Counters("bridge_kafka_producer_recoveries_total",
			"Times a broker had forgotten a lane's producer, by whether the batch in flight was "+
				"found: stored, missing, unread; and batches of an earlier process that were "+
				"stored after the start: late.",
			"batch", "stored", "missing", "unread", "late"),
		damaged: f.Counter("bridge_kafka_damaged_batches_total",
			"Batches of topics that could not be read back: damaged, or larger than any that the "+
				"sink sends."),
		connections: f.Counter("bridge_kafka_connections_opened_total",
			"Connections opened to brokers."),
		seconds: f.Histogram("bridge_kafka_batch_seconds",
			"Time from the first attempt to send a batch to its answer.",
			prometheus.ExponentialBuckets(0.001, 3, 10)),
		waiting: f.Gauge("bridge_kafka_lanes_resending",
			"Lanes that send a batch again because it has no final answer."),
		unused: f.Gauge("bridge_kafka_unused_partitions",
			"Partitions that topics have got since an earlier run, and that get no events, so "+
				"that those of an object stay in one."),
	}
}

// observe counts a batch that has got its final answer.
func (m *metrics) observe(result outcome, batch *inflightBatch, took time.Duration) {
	switch result {
	case stored:
		m.batches.With("stored").Inc()
		m.records.Add(float64(batch.records))
		m.bytes.Add(float64(len(batch.bytes)))
		m.seconds.Observe(took.Seconds())
	case refused:
		m.batches.With("refused").Inc()
	default:
		m.batches.With("unanswered").Inc()
	}
}
