package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Config is the section `kafka` of a sink.
//
// Kafka publishes to Kafka, or to what speaks its protocol. A record's key is the object's
// partitionkey, so an object's events lie in one partition, in order; a broker acknowledges when
// all in-sync replicas have it.
type Config struct {
	// Brokers are addresses as host:port of some of the brokers; the others are found from them.
	// Required.
	Brokers []string `yaml:"brokers"`
	// ClientID is the name of this client in the broker's log, metrics and quotas.
	ClientID string `yaml:"clientID" default:"bridge"`
	// Topic is the template of the topic. Fields: {cluster}, {informer}, {group}, {version},
	// {resource}, {kind}, {namespace}, {name}, {uid}, {op}, {type}, and {attributes.NAME} for
	// those of the informer's `attributes`. Use only fields that stay the same over an object's
	// life, or its order is lost. Events go to at most `maxTopics` topics.
	// Resources of two groups with one name share the default topic: see `apiversion`.
	Topic string `yaml:"topic" default:"k8s.{cluster}.{resource}"`
	// MaxTopics bounds the topics that events go to. Events for more are dead letters. It also
	// bounds how many topics that got nothing in the last run are remembered, for reading back and
	// for `newPartitions`. It has no default where `createTopics` makes topics of {name}, {uid} or
	// attributes: who writes objects chooses these, and the first names take what there may be.
	MaxTopics int `yaml:"maxTopics" default:"1000"`
	// DeadLetterTopic is the template of the topic for events that the broker refuses permanently,
	// and those too large for it that `oversize` has no form for: the event with the reason,
	// without its data where that does not fit. Left out: such an event is counted, logged, and
	// goes into the folder of `state.maxUndeliveredBytes`.
	DeadLetterTopic string `yaml:"deadLetterTopic"`
	// Compression of record batches.
	Compression string `yaml:"compression" default:"lz4" oneof:"none gzip snappy lz4 zstd"`
	// CreateTopics makes topics that are missing. Left out: they must be there. Kafka's own
	// `auto.create.topics.enable` makes none for the bridge.
	CreateTopics *CreateTopics `yaml:"createTopics"`
	// Tombstones adds a record with the same key and no value after each deleted event, so that a
	// compacted topic forgets the object. Not with payload `patch`, nor with `reference` in binary
	// encoding: a compacted topic would lose the objects.
	Tombstones bool `yaml:"tombstones"`
	// Timestamps is what the time of a record is. `sent`: when the bridge sent it. `event`: the
	// event's `time`, for engines that take it as event time. Kafka's retention goes by it: a topic
	// with a `retention.ms` forgets the snapshot of objects that last changed before, soon after it
	// is stored. So use it with `retention.ms: "-1"` or a compacted topic.
	Timestamps string `yaml:"timestamps" default:"sent" oneof:"sent event"`
	// View makes the topics a table of what exists: of each object the newest event, and nothing of
	// an object that is gone. It sets `tombstones`, `cleanup.policy: compact` in `createTopics`,
	// which makes topics that are missing, and `delivery: latest` for this sink. While a topic is
	// not compacted, its events wait. At the end of each list the keys of objects that do not exist
	// are deleted, for which the topic is read.
	View bool `yaml:"view"`
	// NewPartitions is what is done with partitions that a topic has got since the bridge last ran.
	// `keep`: nothing, events are spread over as many as before, so that all of an object are in
	// one, in order. `use`: over all, which moves objects; a consumer may then read an object's
	// later events before its earlier ones, unless it has read all that was there. What was before
	// is known from the state directory, with `readBack`. While the bridge runs, new partitions are
	// never used.
	NewPartitions string `yaml:"newPartitions" default:"keep" oneof:"keep use"`
	// SASL is how the bridge authenticates. Left out: it does not, or by the certificate in `tls`.
	SASL *SASL `yaml:"sasl"`
	// TLS turns TLS on (`tls: {}`). Left out: plain text.
	TLS *sinks.TLS `yaml:"tls"`
}

// CreateTopics says how missing topics are made. Topics that are there are never changed.
type CreateTopics struct {
	// Partitions of each topic. 0: the broker's default. More that are added later get nothing, or
	// break the order of objects once: see `newPartitions`.
	Partitions int `yaml:"partitions" default:"0"`
	// ReplicationFactor of each topic. 0: the broker's default.
	ReplicationFactor int `yaml:"replicationFactor" default:"0"`
	// Config are settings of each topic by Kafka's names, such as `cleanup.policy: compact`.
	Config map[string]string `yaml:"config"`
}

var _ interface {
	sinks.Remote
	sinks.Filler
} = (*Config)(nil)

// Values of Config.Timestamps.
const (
	SentTime  = "sent"  // when it was encoded
	EventTime = "event" // the event's own time, where it has one
)

const cleanupPolicy = "cleanup.policy"

// Fill sets what a compacted topic needs.
func (k *Config) Fill(path string, given settings.Origins) {
	if !k.View {
		return
	}
	if _, ok := given[path+".tombstones"]; !ok {
		k.Tombstones = true
	}
	if k.CreateTopics == nil {
		k.CreateTopics = &CreateTopics{}
	}
	if k.CreateTopics.Config[cleanupPolicy] == "" {
		topic := map[string]string{}
		maps.Copy(topic, k.CreateTopics.Config)
		topic[cleanupPolicy] = "compact"
		k.CreateTopics.Config = topic
	}
}

// Validate reports what is wrong with the keys.
func (k *Config) Validate(ps *settings.Report, path string) {
	if k.MaxTopics < 1 {
		ps.Add(path+".maxTopics", "want at least 1, got %d", k.MaxTopics)
	}
	if len(k.Brokers) == 0 && !ps.Has(path+".brokers") {
		ps.Add(path+".brokers", "required: addresses such as [kafka-0.kafka:9092]")
	}
	for i, b := range k.Brokers {
		ps.HostPort(fmt.Sprintf("%s.brokers[%d]", path, i), b)
	}
	validateTopic(ps, path+".topic", k.Topic)
	if k.DeadLetterTopic != "" {
		validateTopic(ps, path+".deadLetterTopic", k.DeadLetterTopic)
	}
	if k.CreateTopics != nil {
		for key, bound := range map[string]struct{ value, most int }{
			".createTopics.partitions":        {k.CreateTopics.Partitions, math.MaxInt32},
			".createTopics.replicationFactor": {k.CreateTopics.ReplicationFactor, math.MaxInt16},
		} {
			if bound.value > bound.most {
				ps.Add(path+key, "want at most %d, as in Kafka's protocol, got %d", bound.most, bound.value)
			}
		}
		sinks.RequireLimit(ps, path+".topic", path+".maxTopics", k.Topic, "a topic")
		sinks.RequireLimit(ps, path+".deadLetterTopic", path+".maxTopics", k.DeadLetterTopic, "a topic")
	}
	if k.SASL != nil {
		k.SASL.validate(ps, path+".sasl")
	}
	if k.SASL != nil && k.SASL.Mechanism == mskIAM && k.TLS == nil {
		ps.Add(path+".tls", "required for AWS_MSK_IAM: tls: {}")
	}
	k.TLS.Validate(ps, path+".tls")
	k.validateView(ps, path)
}

// validateTopic refuses a topic that Kafka would, and one that an object would change in its life.
func validateTopic(ps *settings.Report, path, template string) {
	sinks.ValidateTemplate(ps, path, template)
	for _, field := range []string{"{op}", "{type}"} {
		if strings.Contains(template, field) {
			ps.Add(path, "%s changes from event to event: an object's events would lie in several topics, "+
				"without order; use it in a consumer's filter", field)
		}
	}
	for i, c := range outsideFields(template) {
		if c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
			(c < 'A' || c > 'Z') {
			ps.Add(path, "a topic holds letters, digits and . _ - only, got %q at %d of %q", c, i, template)
			return
		}
	}
}

// outsideFields is a template with its fields blanked out by a letter, so that positions stay.
func outsideFields(template string) string {
	out := []rune(template)
	inside := false
	for i, c := range out {
		if c == '{' {
			inside = true
		}
		if inside {
			out[i] = 'x'
		}
		if c == '}' {
			inside = false
		}
	}
	return string(out)
}

// validateView refuses what contradicts a view.
func (k *Config) validateView(ps *settings.Report, path string) {
	if !k.View {
		return
	}
	if !k.Tombstones {
		ps.Add(path+".tombstones", "false contradicts view: a deleted object would stay in the "+
			"topic. Leave it out")
	}
	if policy := k.CreateTopics.Config[cleanupPolicy]; policy != "compact" {
		ps.Add(path+".createTopics", "cleanup.policy %s contradicts view, which needs compact: objects "+
			"that do not change would vanish. Leave it out", policy)
	}
}

// Compacted reports whether the topics are compacted, as far as the configuration says so.
func (k *Config) Compacted() bool {
	return k.Tombstones ||
		k.CreateTopics != nil && strings.Contains(k.CreateTopics.Config["cleanup.policy"], "compact")
}

// Warn reports secrets in plain text, and topics without number.
func (k *Config) Warn(ps *settings.Report, path string) {
	p := k.Protection()
	if p == sinks.PlainText && k.SASL != nil &&
		slices.Contains([]string{"PLAIN", "OAUTHBEARER"}, k.SASL.Mechanism) {
		ps.Add(path+".sasl.mechanism", "%s sends its secret in plain text: set tls", k.SASL.Mechanism)
	}
	if k.SASL != nil && k.SASL.OAuth != nil && strings.HasPrefix(string(k.SASL.OAuth.TokenURL), "http://") {
		ps.Add(path+".sasl.oauth.tokenURL", "the client's secret is sent in plain text: use https://")
	}
	k.TLS.WarnOfSkippedVerify(ps, path, p)
	sinks.WarnOfMany(ps, path+".topic", k.Topic, "a topic", k.MaxTopics)
	sinks.WarnOfMany(ps, path+".deadLetterTopic", k.DeadLetterTopic, "a topic", k.MaxTopics)
}

// Protection is that of TLS, or none.
func (k *Config) Protection() sinks.Protection { return k.TLS.Protection(k.TLS != nil) }

// Places are the brokers, and the identity provider, which gets the client's secret.
func (k *Config) Places() []string {
	places := slices.Clone(k.Brokers)
	if k.SASL != nil && k.SASL.OAuth != nil {
		places = append(places, string(k.SASL.OAuth.TokenURL))
	}
	return places
}

// ReadOnce are the files of the password and of the authorities.
func (k *Config) ReadOnce() (files []string) {
	if k.SASL != nil {
		files = append(files, k.SASL.PasswordFile)
	}
	if k.TLS != nil {
		files = append(files, k.TLS.CAFile)
	}
	return files
}

// Templates are those of the topics.
func (k *Config) Templates() []sinks.Template {
	return []sinks.Template{{Key: "topic", Text: k.Topic}, {Key: "deadLetterTopic", Text: k.DeadLetterTopic}}
}

// Target is the topic.
func (k *Config) Target() []string { return []string{k.Topic} }

// Form is that of a record.
func (k *Config) Form(c sinks.Common) (sinks.Form, error) {
	topic, err := event.ParseTemplate(k.Topic)
	return sinks.Form{
		Prefix: "ce_", Value: func(value string) string { return value },
		Encoding: c.Encoding,
		Destination: func(e *event.Event) string {
			return fmt.Sprintf("sink %s: topic %s, key %s",
				c.Name, topic.Append(nil, e, event.AppendTopicPart), e.PartitionKey)
		},
	}, err
}

// Describe says in which topics records are.
func (k *Config) Describe() *asyncapi.Sink {
	d := &asyncapi.Sink{
		Protocol: "kafka", Servers: k.Brokers, Address: k.Topic, DeadLetters: k.DeadLetterTopic,
		Prefix:    "ce_",
		MediaType: "content-type", ContentType: "content-type", Own: []string{"informer", "sink"},
		Keyed: true, Tombstones: k.Tombstones,
		Oversize: true,
	}
	if k.TLS != nil {
		d.Protocol = "kafka-secure"
	}
	return d
}

// New makes the sink.
func (k *Config) New(c sinks.Common, env *sinks.Env) (sinks.Sink, sinks.Service, error) {
	connection, err := k.Connection(k.ClientID)
	if err != nil {
		return nil, nil, err
	}
	sink, err := New(Options{Config: *k, Common: c, Env: *env, Connection: connection})
	return sink, nil, err
}

// Connection is how a client with an id connects. It reads the files with passwords and
// certificates.
func (k *Config) Connection(clientID string) (Connection, error) {
	encryption, tlsErr := k.TLS.Load()
	c := Connection{Brokers: k.Brokers, ClientID: clientID, TLS: encryption}
	var saslErr error
	if k.SASL != nil {
		c.SASL, c.Token, saslErr = k.SASL.load(context.Background())
	}
	return c, errors.Join(tlsErr, saslErr)
}

// Check asks the brokers.
func (k *Config) Check(
	ctx context.Context, c sinks.Common, env *sinks.Env, topics func(string) []string,
) error {
	sink, _, err := k.New(c, env)
	if err != nil {
		return err
	}
	wrong, connect := sink.(*Sink).Check(ctx, topics(k.Topic))
	problems := []error{sinks.AboutKey("brokers", connect)}
	for _, err := range wrong {
		problems = append(problems, sinks.AboutKey("topic", err))
	}
	return errors.Join(problems...)
}

// Options of a Sink.
type Options struct {
	// Config is the section, with its defaults. Of how to connect it is only the source: see
	// Connection.
	Config
	// Common has the name of the sink, which is in the header sink of every record: after a crash,
	// sinks that share a topic do not take each other's records for their own. "": no header, as if
	// it were the only sink.
	sinks.Common
	sinks.Env
	// Connection is what Config.Connection has made of the section.
	Connection Connection
	// Concurrency is how many lanes publish at once, and so the most connections to one broker;
	// default 16.
	Concurrency int
	// MaxBatchBytes is the size of a record batch before compression; default 960 KiB, which fits
	// the brokers' default max.message.bytes of 1 MiB. A topic whose max.message.bytes is smaller
	// gets smaller batches.
	MaxBatchBytes int
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
	// SASL authenticates every connection; nil: none. Its Password is read, and its Mechanism is
	// one of Kafka's own.
	SASL *SASL
	// Token returns the token for OAUTHBEARER where SASL has no TokenFile. It may be called
	// concurrently.
	Token func(ctx context.Context) (string, error)
	// Timeout of one request and of one connection attempt; default 10 s.
	Timeout time.Duration
	// Dial opens connections; default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultMaxBatchBytes = 960 << 10
	defaultTimeout       = 10 * time.Second
	defaultConcurrency   = 16
)

// check fills in the defaults of what is no key, and reports all problems at once.
func (o *Options) check(topic, deadLetters *event.Template) error {
	o.Concurrency = cmp.Or(o.Concurrency, defaultConcurrency)
	o.MaxBatchBytes = cmp.Or(o.MaxBatchBytes, defaultMaxBatchBytes)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	_, codec := codecOf(o.Compression)
	return errors.Join(o.Connection.check(), codec,
		checkTemplate("topic", topic), checkTemplate("dead-letter topic", deadLetters),
		problem(o.NewPartitions != KeepPartitions && o.NewPartitions != UsePartitions,
			"newPartitions: %q is neither keep nor use", o.NewPartitions),
		problem(!slices.Contains(sinks.Encodings, o.Encoding),
			"encoding: %q is none of %v", o.Encoding, sinks.Encodings),
		problem(o.Timestamps != SentTime && o.Timestamps != EventTime,
			"timestamps: %q is neither sent nor event", o.Timestamps),
		problem(o.MaxBatchBytes < 0 || o.MaxBatchBytes > maxRequest,
			"max batch bytes: %d is not between 1 and %d", o.MaxBatchBytes, maxRequest),
		problem(o.Concurrency < 0, "concurrency: %d is negative", o.Concurrency))
}

func (c *Connection) check() error {
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
	_, sasl := c.mechanism()
	return errors.Join(append(found, sasl,
		problem(c.Timeout < 0, "timeout: %v is negative", c.Timeout))...)
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
