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
	// Brokers are host:port of some brokers, at least one; the others are discovered through them.
	Brokers []string
	// Name of the sink, in the header sink of every record: after a crash, sinks that share a topic
	// do not take each other's records for their own. "": no header, as if it were the only sink.
	Name string
	// Topic is where an event goes; default k8s.{cluster}.{resource}. Fields are encoded with
	// event.AppendTopicPart. Events about an informer and not an object have no resource: they go
	// to "k8s.prod.-".
	Topic *event.Template
	// Cluster is the value of {cluster} in events. With it, Open can check a template that has no
	// other fields.
	Cluster string
	// Encoding is Binary (default) or Structured.
	Encoding string
	// NewPartitions is KeepPartitions (default) or UsePartitions: what happens with partitions that
	// a topic has got since the position that Recall receives was saved. While the sink is open
	// they are never used.
	NewPartitions string
	// Timestamps is SentTime (default) or EventTime. The broker's retention goes by the record's
	// time: with EventTime, the first snapshot of objects that last changed before the topic's
	// retention.ms is deleted within minutes. The event's own time is in its attributes either way.
	Timestamps string
	// Tombstones appends, after each Deleted, a record with the same key and no value, for
	// compacted topics. The two are in one batch: either both are stored or none. A plain tombstone
	// has no headers and is no CloudEvent.
	Tombstones bool
	// View makes the topics a view of the state: each holds the newest event of each object that
	// exists. A topic that is not compacted is refused, and the end of a list deletes the keys of
	// objects that do not exist. It needs Tombstones.
	View bool
	// Informers returns the current informers of the sink; it may be called concurrently. nil: not
	// known. Used with View.
	Informers func() []string
	// LostByCompaction says what a compacted topic loses of the sink's events, "" for nothing. It
	// is in the warning when a topic turns out to be compacted. nil for nothing. It may be called
	// concurrently.
	LostByCompaction func() string
	// Compression is "none", "gzip", "snappy", "lz4" (default) or "zstd".
	Compression string
	// MaxBatchBytes is the size of a record batch before compression; default 960 KiB, which fits
	// the brokers' default max.message.bytes of 1 MiB. A topic whose max.message.bytes is smaller
	// gets smaller batches.
	MaxBatchBytes int

	// TLS turns TLS on. A client certificate makes it mutual; with GetClientCertificate it can be
	// rotated.
	TLS *tls.Config
	// SASL authenticates every connection; nil for none.
	SASL *SASL
	// ClientID is what brokers write in their logs and quotas; default "bridge".
	ClientID string

	// MaxTopics is how many topics the events may go to; default 1000. A template may have fields
	// that the users of a cluster choose: each topic takes memory here and in the brokers.
	MaxTopics int
	// CreateTopics says how topics that do not exist are created; nil: they must exist.
	CreateTopics *CreateTopics
	// DeadLetterTopic is where refused events go; nil: DeadLetter returns sinks.ErrNoDeadLetter.
	DeadLetterTopic *event.Template

	// Timeout of one request and of one connection attempt; default 10 s.
	Timeout time.Duration
	// Concurrency is how many lanes publish at once, and so the number of connections per broker at
	// most; default 16.
	Concurrency int
	// Confirm returns nil while this process is the one that may publish. It is asked before a lane
	// continues as another producer, since this process's successor may be the reason why the
	// broker knows other sequence numbers. nil: this process is the only one.
	Confirm func(ctx context.Context) error
	// Dial opens connections; default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log gets the sink's messages; default none.
	Log *slog.Logger
	// Registerer gets the sink's metrics; nil: none.
	Registerer prometheus.Registerer
}

// CreateTopics says how a topic is created.
type CreateTopics struct {
	// Partitions and ReplicationFactor; 0 for the brokers' default.
	Partitions, ReplicationFactor int
	// Config are the topic's settings, as min.insync.replicas or retention.ms.
	Config map[string]string
}

const (
	defaultTopic         = "k8s.{cluster}.{resource}"
	defaultMaxBatchBytes = 960 << 10
	defaultTimeout       = 10 * time.Second
	defaultConcurrency   = 16
)

// withDefaults fills in what is zero, and reports all problems at once.
func (c Config) withDefaults() (Config, error) {
	c.Encoding = cmp.Or(c.Encoding, Binary)
	c.NewPartitions = cmp.Or(c.NewPartitions, KeepPartitions)
	c.Timestamps = cmp.Or(c.Timestamps, SentTime)
	c.Compression = cmp.Or(c.Compression, "lz4")
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, defaultMaxBatchBytes)
	c.ClientID = cmp.Or(c.ClientID, "bridge")
	c.MaxTopics = cmp.Or(c.MaxTopics, 1000)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Topic == nil {
		c.Topic, _ = event.ParseTemplate(defaultTopic) // a constant that parses
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, c.problems()
}

func (c *Config) problems() error {
	var found []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			found = append(found, fmt.Errorf(format, args...))
		}
	}
	bad(len(c.Brokers) == 0, "brokers: none given")
	for _, b := range c.Brokers {
		_, _, err := net.SplitHostPort(b)
		bad(err != nil, "brokers: %q is not host:port", b)
	}
	bad(c.Encoding != Binary && c.Encoding != Structured, "encoding: %q is neither binary nor "+
		"structured", c.Encoding)
	bad(c.NewPartitions != KeepPartitions && c.NewPartitions != UsePartitions,
		"newPartitions: %q is neither keep nor use", c.NewPartitions)
	bad(c.Timestamps != SentTime && c.Timestamps != EventTime, "timestamps: %q is neither sent "+
		"nor event", c.Timestamps)
	bad(c.MaxBatchBytes < 0 || c.MaxBatchBytes > maxRequest, "max batch bytes: %d is not between "+
		"1 and %d", c.MaxBatchBytes, maxRequest)
	bad(c.Timeout < 0, "timeout: %v is negative", c.Timeout)
	bad(c.Concurrency < 0, "concurrency: %d is negative", c.Concurrency)
	_, err := codecOf(c.Compression)
	found = append(found, err)
	_, err = c.SASL.mechanism()
	found = append(found, err)
	found = append(found, checkTemplate("topic", c.Topic), checkTemplate("dead-letter topic",
		c.DeadLetterTopic))
	return errors.Join(found...)
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
