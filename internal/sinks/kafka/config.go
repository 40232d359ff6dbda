package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go/compress"

	"github.com/kubebridge/bridge/internal/event"
)

// Encodings of an event.
const (
	Binary     = "binary"     // attributes as headers, the payload as the value
	Structured = "structured" // the whole event as the value
)

// Times of a record.
const (
	SentTime  = "sent"  // when it was encoded
	EventTime = "event" // the event's own time, where it has one
)

// Config of a Sink. Zero values mean the documented default.
type Config struct {
	// Name of the sink, in the header sink of every record: after a crash, sinks that share a topic
	// do not take each other's records for their own. "": no header, as if it were the only sink.
	Name string
	// Cluster is the value of {cluster} in events. With it, Open can check a template that has no
	// other fields.
	Cluster string

	Connection Connection
	Topics     Topics
	Records    Records

	// View makes the topics a view of the state: each holds the newest event of each object that
	// exists. The sink then refuses a topic that is not compacted, and at the end of a list it
	// deletes the keys of objects that do not exist. It needs Records.Tombstones.
	View bool
	// Concurrency is how many lanes publish at once, and so the most connections to one broker;
	// default 16.
	Concurrency int

	// Informers returns the current informers of the sink; nil: not known. Used with View. It may
	// be called concurrently.
	Informers func() []string
	// LostByCompaction returns what a compacted topic loses of the sink's events, for the warning
	// about such a topic; "", and nil, for nothing. It may be called concurrently.
	LostByCompaction func() string
	// Confirm returns nil while this process is the one that may publish. A lane calls it before it
	// continues as another producer: perhaps the broker knows other sequence numbers because this
	// process has a successor. nil: this process is the only one.
	Confirm func(ctx context.Context) error
	// Log gets the sink's messages; default none.
	Log *slog.Logger
	// Registerer gets the sink's metrics; nil: none.
	Registerer prometheus.Registerer
}

// Connection says where the brokers are and how to connect to them. A reader needs nothing else.
type Connection struct {
	// Brokers are host:port of some brokers, at least one; the others are discovered through them.
	Brokers []string
	// ClientID is what brokers write in their logs and quotas; default "bridge".
	ClientID string
	// TLS turns TLS on; nil: off. A client certificate makes it mutual; with GetClientCertificate
	// it can be rotated.
	TLS *tls.Config
	// SASL authenticates every connection; nil: none.
	SASL *SASL
	// Timeout of one request and of one connection attempt; default 10 s.
	Timeout time.Duration
	// Dial opens connections; default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Topics says which topics the events go to, and what happens when a topic is missing or has got
// more partitions.
type Topics struct {
	// Events is the topic of an event; default k8s.{cluster}.{resource}. Fields are encoded with
	// event.AppendTopicPart. Events about an informer and not an object have no resource: they go
	// to "k8s.prod.-".
	Events *event.Template
	// DeadLetters is the topic of refused events; nil: DeadLetter returns sinks.ErrNoDeadLetter.
	DeadLetters *event.Template
	// Max is how many topics the events may go to; default 1000. A template may have fields that
	// the users of a cluster choose: each topic takes memory here and in the brokers. A position
	// keeps as many topics of earlier runs.
	Max int
	// Create says how a missing topic is created; nil: topics must exist.
	Create *CreateTopics
	// NewPartitions is KeepPartitions (default) or UsePartitions: what happens with partitions that
	// a topic has got since the position was saved that Recall receives. Partitions that it gets
	// while the sink is open are never used.
	NewPartitions string
}

// CreateTopics says how a topic is created.
type CreateTopics struct {
	// Partitions and ReplicationFactor; 0 for the brokers' default.
	Partitions, ReplicationFactor int
	// Config are the topic's settings, as min.insync.replicas or retention.ms.
	Config map[string]string
}

// Records says how events become records, and records batches.
type Records struct {
	// Encoding is Binary (default) or Structured.
	Encoding string
	// Timestamps is SentTime (default) or EventTime. The broker's retention goes by the record's
	// time: with EventTime, the first snapshot of objects that last changed before the topic's
	// retention.ms is deleted within minutes. The event's own time is in its attributes either way.
	Timestamps string
	// Tombstones appends, after each Deleted, a record with the same key and no value, for
	// compacted topics. The two are in one batch: either both are stored or none. A plain tombstone
	// has no headers and is no CloudEvent.
	Tombstones bool
	// Compression is "none", "gzip", "snappy", "lz4" (default) or "zstd".
	Compression string
	// MaxBatchBytes is the size of a record batch before compression; default 960 KiB, which fits
	// the brokers' default max.message.bytes of 1 MiB. A topic whose max.message.bytes is smaller
	// gets smaller batches.
	MaxBatchBytes int
}

const (
	defaultTopic         = "k8s.{cluster}.{resource}"
	defaultMaxTopics     = 1000
	defaultMaxBatchBytes = 960 << 10
	defaultTimeout       = 10 * time.Second
	defaultConcurrency   = 16
)

// withDefaults fills in what is zero, and reports all problems at once.
func (c Config) withDefaults() (Config, error) {
	var connection, topics, records error
	c.Connection, connection = c.Connection.withDefaults()
	c.Topics, topics = c.Topics.withDefaults()
	c.Records, records = c.Records.withDefaults()
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c, errors.Join(connection, topics, records,
		problem(c.Concurrency < 0, "concurrency: %d is negative", c.Concurrency))
}

func (c Connection) withDefaults() (Connection, error) {
	c.ClientID = cmp.Or(c.ClientID, "bridge")
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	found := []error{problem(len(c.Brokers) == 0, "brokers: none given")}
	for _, b := range c.Brokers {
		_, _, err := net.SplitHostPort(b)
		found = append(found, problem(err != nil, "brokers: %q is not host:port", b))
	}
	_, sasl := c.SASL.mechanism()
	return c, errors.Join(append(found, sasl,
		problem(c.Timeout < 0, "timeout: %v is negative", c.Timeout))...)
}

func (t Topics) withDefaults() (Topics, error) {
	t.NewPartitions = cmp.Or(t.NewPartitions, KeepPartitions)
	t.Max = cmp.Or(t.Max, defaultMaxTopics)
	if t.Events == nil {
		t.Events, _ = event.ParseTemplate(defaultTopic) // a constant that parses
	}
	return t, errors.Join(checkTemplate("topic", t.Events),
		checkTemplate("dead-letter topic", t.DeadLetters),
		problem(t.NewPartitions != KeepPartitions && t.NewPartitions != UsePartitions,
			"newPartitions: %q is neither keep nor use", t.NewPartitions))
}

func (r Records) withDefaults() (Records, error) {
	r.Encoding = cmp.Or(r.Encoding, Binary)
	r.Timestamps = cmp.Or(r.Timestamps, SentTime)
	r.Compression = cmp.Or(r.Compression, "lz4")
	r.MaxBatchBytes = cmp.Or(r.MaxBatchBytes, defaultMaxBatchBytes)
	_, codec := codecOf(r.Compression)
	return r, errors.Join(codec,
		problem(r.Encoding != Binary && r.Encoding != Structured,
			"encoding: %q is neither binary nor structured", r.Encoding),
		problem(r.Timestamps != SentTime && r.Timestamps != EventTime,
			"timestamps: %q is neither sent nor event", r.Timestamps),
		problem(r.MaxBatchBytes < 0 || r.MaxBatchBytes > maxRequest,
			"max batch bytes: %d is not between 1 and %d", r.MaxBatchBytes, maxRequest))
}

// problem is an error when something is wrong, else nil.
func problem(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// codecOf returns the codec of a name.
func codecOf(name string) (compress.Compression, error) {
	switch name {
	case "none":
		return compress.None, nil
	case "gzip":
		return compress.Gzip, nil
	case "snappy":
		return compress.Snappy, nil
	case "lz4":
		return compress.Lz4, nil
	case "zstd":
		return compress.Zstd, nil
	default:
		return compress.None, fmt.Errorf("compression: no codec %q; there are none, gzip, "+
			"snappy, lz4, zstd", name)
	}
}

// checkTemplate reports whether the literal text of a template can be part of a topic's name.
func checkTemplate(what string, t *event.Template) error {
	if t == nil {
		return nil
	}
	sample := t.Pattern("x", nil, event.AppendTopicPart)
	if err := checkTopic(sample); err != nil {
		return fmt.Errorf("%s %q: %w", what, t, err)
	}
	return nil
}
