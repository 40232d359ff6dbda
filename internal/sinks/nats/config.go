package nats

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Values of Config.Mode.
const (
	JetStream = "jetstream" // stored in a stream, acknowledged
	Core      = "core"      // delivered to whoever listens, at most once
	KV        = "kv"        // a key-value bucket that holds the newest event of each object
)

// Values of Config.Encoding.
const (
	Binary     = "binary"     // attributes as headers, the payload as it is
	Structured = "structured" // one JSON document with everything in it
)

// NoDeadLetter as Config.DeadLetter: DeadLetter returns sinks.ErrNoDeadLetter.
const NoDeadLetter = "off"

// DefaultSubject is the subject template used when the configuration names none.
const DefaultSubject = "k8s.{cluster}.{group}.{version}.{resource}.{namespace}.{name}.{op}"

// Config of a Sink. Zero values mean the documented default.
type Config struct {
	Connection Connection

	// Sink is the sink's own name. It distinguishes its dead letters and its fence from those of
	// other sinks that share a stream with it, and must not change from process to process.
	// Letters, digits and dashes. Default "nats".
	Sink string
	// Cluster is the value of {cluster} in the subjects of the stream. Required when Subject names
	// it.
	Cluster string

	// Mode is JetStream (default), Core or KV.
	Mode string
	// Bucket is the name of the key-value bucket. Used with Mode KV only. Subject, DeadLetter, and
	// of Stream the Name, Subjects, MaxAge and MaxMsgsPerSubject then follow from the mode; the
	// rest of Stream says how the bucket is stored.
	Bucket string
	// Encoding is Binary (default) or Structured.
	Encoding string
	// Subject is a template of the subject. Default DefaultSubject.
	Subject string
	// DeadLetter is a template of the subject for refused messages, or NoDeadLetter. Default: the
	// constant beginning of Subject followed by _deadletter.{resource}.{op}. No field can produce
	// that token, so no event has such a subject.
	DeadLetter string
	// Stream is the stream that stores the subjects. Not used with Mode Core.
	Stream Stream
	// Objects is where Claim stores payloads that are too large for a message. Not used with Mode
	// Core.
	Objects Objects

	// AckTimeout is how long a message may stay without an answer. It begins when the last message
	// of the Publish call was written. It also bounds a write to a connection that accepts nothing.
	// Default 5s.
	AckTimeout time.Duration
	// Limits of a Publish call. Default those of sinks.Limits.
	Limits sinks.Limits

	// Informers returns the current informers of the sink; nil: not known. It may be called
	// concurrently. Two sinks that get events of one informer can't share a stream: the server
	// would drop the second one's as duplicates. With Informers and Owners given, Open refuses such
	// a sink, except with Mode Core and with Manage Off.
	Informers func() []string
	// Owners has the streams of all sinks of the process, which share it. nil: this is the only
	// sink.
	Owners *StreamOwners
	// Fence fences processes that published before this one. Used only with JetStream, and a stream
	// that is managed or verified. nil: there are no such processes.
	Fence *Fence
	// Log gets state changes and what an operator can act on. Default: nothing is logged.
	Log *slog.Logger
	// Metrics are registered here. nil: nowhere.
	Metrics prometheus.Registerer
}

// Connection says where the servers are and how to connect to them and to their JetStream API. A
// reader needs nothing else. Zero values mean the documented default.
type Connection struct {
	// URL of the servers, comma-separated. Default nats://127.0.0.1:4222.
	URL string
	// Name of the connection, as the server's monitoring shows it. Default "bridge".
	Name string
	// Auth is how the connection authenticates. Default: it does not.
	Auth Auth
	// TLS of the connection. Default: as the scheme of URL and the server ask for, with the
	// system's CAs.
	TLS TLS
	// Timeout of one attempt to connect, and of each request to the JetStream API. Default 5s.
	Timeout time.Duration
	// Domain is the JetStream domain, for a stream behind a leaf node. Default none.
	Domain string
	// APIPrefix is the beginning of the JetStream API's subjects, for streams of another account
	// that exports them. Not used with Domain. Default "$JS.API".
	APIPrefix string
	// InboxPrefix is the beginning of the subjects of answers, for accounts with restricted
	// permissions. Default "_INBOX".
	InboxPrefix string
}

// Auth is how a connection authenticates: in one of these ways, or not at all.
type Auth struct {
	CredsFile string // user JWT and NKey seed; read again on every connect, so it may be rotated
	NKeyFile  string // NKey seed
	Token     string
	TokenFile string // read on every connect; without one no token is sent
	User      string
	Password  string
}

// TLS settings. Files are PEM and read on every connect.
type TLS struct {
	CAFile         string // CAs to trust instead of the system's
	CertFile       string // client certificate
	KeyFile        string // its key
	ServerName     string // expected name in the server's certificate; default the host of the URL
	HandshakeFirst bool   // TLS before the server's greeting, for servers with handshake_first
	Insecure       bool   // accept any server certificate; for tests
}

// Values of Stream.Manage.
const (
	Create = "create" // create the stream if it is missing, check it if it exists
	Verify = "verify" // check it, never create it
	Off    = "off"    // no JetStream API is used: somebody else manages the stream
)

// Stream says what the stream must be like, and so how a missing one is created. An existing stream
// is never changed. When it differs in what the promises depend on (subjects, retention, storage,
// replicas, duplicates window), Open fails and reports the difference.
type Stream struct {
	// Name of the stream. Default "K8S". A name with fields is a template: it names the stream of
	// each event, and a stream is looked up with its first event. The server stores each stream in
	// one thread; several streams share the load.
	Name string
	// Max is how many streams a template may name; default 1000. A template may have fields that
	// the users of a cluster choose: each stream takes memory here and in the server.
	Max int
	// Subjects of the stream. Default: the constant beginning of Config.Subject and everything
	// below it, k8s.<cluster>.>; with a template as Name the subjects that Config.Subject and
	// Config.DeadLetter produce for it.
	Subjects []string
	// MaxAge of messages. Default 168h; negative: no limit.
	MaxAge time.Duration
	// MaxBytes of the stream, beyond which the oldest messages are deleted. Default: no limit but
	// the account's.
	MaxBytes int64
	// Replicas. Default 3 on a cluster, 1 on a single server.
	Replicas int
	// Storage is "file" (default) or "memory".
	Storage string
	// Duplicates is how long the stream remembers ids. It must be longer than a message may be in
	// flight. The server keeps about 200 bytes per id in memory. Default 2m.
	Duplicates time.Duration
	// Compression is "s2" (default) or "none".
	Compression string
	// MaxMsgsPerSubject is how many messages of a subject are kept. Default: no limit.
	MaxMsgsPerSubject int64
	// Placement chooses the servers: the name of a cluster, and tags. Default: the server chooses.
	Placement Placement
	// DenyDelete and DenyPurge make the server refuse to remove messages before their time.
	DenyDelete, DenyPurge bool
	// Manage is Create (default), Verify or Off.
	Manage string

	bucket bool // the stream is a key-value bucket
}

// Placement says which servers hold a stream.
type Placement struct {
	Cluster string
	Tags    []string
}

// Objects is a bucket of the JetStream object store. An existing bucket is never changed.
type Objects struct {
	// Bucket is its name. Default none: Claim returns sinks.ErrNoClaims.
	Bucket string
	// MaxAge of objects. Default that of the stream, since an event's payload should live as long
	// as the event; negative: no limit.
	MaxAge time.Duration
	// MaxBytes of the bucket; a full bucket refuses more. Default: no limit but the account's.
	MaxBytes int64
}

func (c Config) withDefaults() Config {
	c.Connection = c.Connection.withDefaults()
	c.Sink = cmp.Or(c.Sink, "nats")
	c.Mode = cmp.Or(c.Mode, JetStream)
	if c.Mode == KV {
		c.setBucket()
	}
	c.Encoding = cmp.Or(c.Encoding, Binary)
	c.Subject = cmp.Or(c.Subject, DefaultSubject)
	c.Stream = c.Stream.withDefaults()
	c.DeadLetter = cmp.Or(c.DeadLetter, DefaultDeadLetter(c.Subject, c.Stream.Name))
	c.AckTimeout = cmp.Or(c.AckTimeout, 5*time.Second)
	c.Limits.Messages = cmp.Or(c.Limits.Messages, 512)
	c.Limits.Bytes = cmp.Or(c.Limits.Bytes, 900<<10)
	c.Limits.Concurrency = cmp.Or(c.Limits.Concurrency, 4)
	c.Objects.MaxAge = max(cmp.Or(c.Objects.MaxAge, c.Stream.MaxAge), 0)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Connection) withDefaults() Connection {
	c.URL = cmp.Or(c.URL, "nats://127.0.0.1:4222")
	c.Name = cmp.Or(c.Name, "bridge")
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	return c
}

func (s Stream) withDefaults() Stream {
	s.Name = cmp.Or(s.Name, "K8S")
	s.Max = cmp.Or(s.Max, 1000)
	s.MaxAge = max(cmp.Or(s.MaxAge, 168*time.Hour), 0)
	s.Storage = cmp.Or(s.Storage, "file")
	s.Duplicates = cmp.Or(s.Duplicates, 2*time.Minute)
	s.Compression = cmp.Or(s.Compression, "s2")
	s.Manage = cmp.Or(s.Manage, Create)
	return s
}

// storage in the constants of the client library.
func (s *Stream) storage() jetstream.StorageType {
	if s.Storage == "memory" {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

func (s *Stream) compression() jetstream.StoreCompression {
	if s.Compression == "none" {
		return jetstream.NoCompression
	}
	return jetstream.S2Compression
}
