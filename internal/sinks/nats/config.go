package nats

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Config is the section `nats` of a sink.
//
// NATS publishes to NATS JetStream, or to core NATS.
type Config struct {
	// The fields are flat because the keys are, as those of Informer.

	// Servers are URLs of one or more servers of a NATS cluster: the others are found from them.
	// With `embedded`, the one address where the embedded server listens. Credentials are better
	// given by the keys below than in a URL.
	Servers []settings.URL `yaml:"servers" default:"nats://127.0.0.1:4222"`
	// Embedded runs a NATS server with JetStream inside the bridge, which any NATS client can read
	// from. Its streams live in `storeDir`. One sink may have it; others may use its address in
	// `servers`. For a look and for small installations: events are only as safe as this one disk.
	// Processes of the bridge's own user need no credentials, but in a pod; other clients send the
	// token that the bridge puts into the file `token` of `storeDir`.
	Embedded bool `yaml:"embedded"`
	// StoreDir is where the embedded server keeps its streams. Needs `embedded`. Left out: the
	// directory `nats` in `state.dir`.
	StoreDir string `yaml:"storeDir"`
	// Mode is one of three. `jetstream`: an event is sent when a stream has stored it, and the
	// server removes duplicates. `core`: an event is sent when the server has it, at most once. Who
	// is not listening misses it. `kv`: a key-value bucket holds the newest event of each object
	// that exists, and any NATS client gets, lists and watches it (docs/consumers.md).
	Mode string `yaml:"mode" default:"jetstream" oneof:"jetstream core kv"`
	// Bucket is the name of the key-value bucket of mode `kv`, which is made when missing. The key
	// of an object is `<group>.<resource>.<namespace>.<name>`, as `apps.deployments.shop.web`;
	// `stream` says how it is stored. A bucket is of one sink, and of one cluster. Required with
	// mode `kv`.
	Bucket string `yaml:"bucket"`
	// Stream is the JetStream stream that stores the events. Not with mode `core`.
	Stream Stream `yaml:"stream"`
	// Subject is the template of the subject. Fields: {cluster}, {informer}, {group}, {version},
	// {resource}, {kind}, {namespace}, {name}, {uid}, {op}, {type}, {changed}, and
	// {attributes.NAME} for those of the informer's `attributes`. The core group is `core`, no
	// namespace is `-`, and what a token may not hold is encoded (`.` as `_`).
	Subject string `yaml:"subject" default:"k8s.{cluster}.{group}.{version}.{resource}.{namespace}.{name}.{op}"`
	// DeadLetterSubject is the template of the subject for events that the server refuses
	// permanently, and those too large for it that `oversize` has no form for: the event with the
	// reason, without its data where that does not fit. A stream must store it. Left out: the
	// constant beginning of `subject`, then `_deadletter.{resource}.{op}`, as
	// `k8s._deadletter.pods.updated`. `off`: such an event is counted, logged, and goes into the
	// folder of `state.maxUndeliveredBytes`.
	DeadLetterSubject string `yaml:"deadLetterSubject"`
	// Objects is where payloads are kept that are too large for a message. Not with mode `core`.
	Objects Objects `yaml:"objects"`
	// Domain is the JetStream domain, for leaf nodes. Not with mode `core`.
	Domain string `yaml:"domain"`
	// APIPrefix is the beginning of the JetStream API's subjects, where another account has the
	// streams and exports its API. Left out: `$JS.API`. Not beside `domain`, nor with mode `core`.
	APIPrefix string `yaml:"apiPrefix"`
	// InboxPrefix is the beginning of the subjects on which the server answers. Whoever may publish
	// there can forge acknowledgements: give the bridge's user a prefix of its own where others
	// share the account.
	InboxPrefix string `yaml:"inboxPrefix" default:"_INBOX"`
	// CredsFile is the path of a .creds file (JWT and nkey seed). At most one of `credsFile`,
	// `nkeyFile`, `token`, `tokenFile` and `username`.
	CredsFile string `yaml:"credsFile"`
	// NkeyFile is the path of an nkey seed.
	NkeyFile string `yaml:"nkeyFile"`
	// Token is an authentication token. Better `tokenFile` or ${VARIABLE}.
	Token settings.Secret `yaml:"token"`
	// TokenFile is the path of a file that holds the token.
	TokenFile string `yaml:"tokenFile"`
	// Username is a user name. Needs `password` or `passwordFile`.
	Username string `yaml:"username"`
	// Password is the password of `username`. Better `passwordFile` or ${VARIABLE}.
	Password settings.Secret `yaml:"password"`
	// PasswordFile is the path of a file that holds the password.
	PasswordFile string `yaml:"passwordFile"`
	// TLS is needed where the server's certificate is not signed by one of the system's
	// authorities, or wants one of the bridge. Without it, a URL of `tls://` checks against the
	// system's.
	TLS *sinks.TLS `yaml:"tls"`
	// TLSFirst begins TLS before the server has spoken, for servers with `handshake_first: true`.
	// Needs the section `tls` or servers of `tls://`.
	TLSFirst bool `yaml:"tlsFirst"`
}

// Objects is a bucket of the JetStream object store for payloads that are too large for a message:
// `oversize: [claim]`. An event then has a `dataref` of nats-object://<bucket>/<name> and no data.
type Objects struct {
	// Bucket is its name. It is made when missing, as the stream is; one that is there is never
	// changed. Sinks may share one. Left out: none.
	Bucket string `yaml:"bucket"`
	// MaxAge is how long payloads are kept. 0: forever. Shorter than `stream.maxAge`, and consumers
	// find events without their payloads.
	MaxAge time.Duration `yaml:"maxAge" default:"168h"`
	// MaxBytes bounds the bucket; a full bucket takes no more, and the events wait. 0: no bound but
	// the server's.
	MaxBytes settings.Size `yaml:"maxBytes" default:"0"`
}

// Stream is the JetStream stream that stores the events.
type Stream struct {
	// Name is the stream's name. Sinks that no informer feeds both may share one. Two that an
	// informer feeds both need streams of their own, and subjects that do not overlap: a stream
	// takes each event of an informer once, and would drop what the second sink sends. The
	// configuration is refused then. Where it can't know (a cluster called by two names, two users)
	// the sink that comes second is not opened, and says why; `manage: off` asks the server
	// nothing, so there this name alone decides. With fields, as `K8S-{resource}`, there are
	// several streams, each made with its first event: one stream stores in one thread of the
	// server, several share the load. The fields must be tokens of `subject`, and stay the same
	// over an object's life. There are at most `maxStreams`.
	Name string `yaml:"name" default:"K8S"`
	// MaxStreams bounds the streams that a name with fields makes. Events for more are dead
	// letters. It has no default where `manage: create` makes streams of {name}, {uid} or
	// attributes: who writes objects chooses these, and the first names take what there may be.
	MaxStreams int `yaml:"maxStreams" default:"1000"`
	// Subjects are what the stream stores. Left out: the constant beginning of `subject` with
	// everything below it, as `k8s.prod.>`, and the dead letters.
	Subjects []string `yaml:"subjects"`
	// MaxAge is how long events are kept. 0: forever.
	MaxAge time.Duration `yaml:"maxAge" default:"168h"`
	// MaxBytes bounds the stream; the oldest events go first. 0: no bound but the server's; with
	// `embedded`, 8GiB.
	MaxBytes settings.Size `yaml:"maxBytes" default:"0"`
	// Replicas is how many servers hold each event. 0: three on a cluster, one on a single server.
	Replicas int `yaml:"replicas" default:"0"`
	// MaxMsgsPerSubject bounds the events of a subject, of which the oldest go first: with a
	// subject for each object, how many versions of an object are kept. 0: no bound.
	MaxMsgsPerSubject int `yaml:"maxMsgsPerSubject" default:"0"`
	// Compression of the stream's files: `s2` or `none`.
	Compression string `yaml:"compression" default:"s2" oneof:"s2 none"`
	// Placement says which servers of a cluster hold the stream. Left out: the cluster decides.
	Placement Placement `yaml:"placement"`
	// DenyDelete makes the server refuse to delete single events. Only whoever may delete the
	// stream can then remove events before their time. A stream that has it keeps it; one that was
	// made without it is not changed: `nats stream edit K8S --deny-delete` does that.
	DenyDelete bool `yaml:"denyDelete"`
	// DenyPurge makes the server refuse to purge the stream. A stream that has it keeps it; for one
	// that was made without it: `nats stream edit K8S --deny-purge`.
	DenyPurge bool `yaml:"denyPurge"`
	// Storage is `file` or `memory`.
	Storage string `yaml:"storage" default:"file" oneof:"file memory"`
	// DuplicateWindow is how far back the server remembers ids, to remove what is sent twice.
	// Longer than an outage of the bridge that you expect between a crash and its restart; costs
	// the server memory per event.
	DuplicateWindow time.Duration `yaml:"duplicateWindow" default:"2m"`
	// Manage is `create`: make the stream when it is missing; `verify`: it must be there; `off`:
	// ask nothing, for users without rights on the JetStream API. A stream that is there is never
	// changed: where it differs in what the bridge relies on, the sink says so and does not start.
	Manage string `yaml:"manage" default:"create" oneof:"create verify off"`

	bucket bool // the stream is a key-value bucket
}

// Placement says which servers hold a stream.
type Placement struct {
	// Cluster is the name of the cluster, of several that are connected. Left out: that of the
	// server that the bridge is connected to.
	Cluster string `yaml:"cluster"`
	// Tags are tags that the servers must have.
	Tags []string `yaml:"tags"`
}

// Values of Config.Mode.
const (
	JetStream = "jetstream" // stored in a stream, acknowledged
	Core      = "core"      // delivered to whoever listens, at most once
	KV        = "kv"        // a key-value bucket that holds the newest event of each object
)

// Values of Stream.Manage.
const (
	Create = "create" // create the stream if it is missing, check it if it exists
	Verify = "verify" // check it, never create it
	Off    = "off"    // no JetStream API is used: somebody else manages the stream
)

// NoDeadLetter as Config.DeadLetterSubject: DeadLetter returns sinks.ErrNoDeadLetter.
const NoDeadLetter = "off"

// Fill sets what follows from the name of a bucket.
func (n *Config) Fill(string, settings.Origins) {
	if n.Mode == KV && bucketName.MatchString(n.Bucket) {
		n.Stream.Name = bucketStream + n.Bucket
		n.Subject = bucketSubject + n.Bucket + "." + keyTemplate
	}
}

// Options of a Sink.
type Options struct {
	// Config is the section, with its defaults and with the secrets that its files hold.
	Config
	// Common has the sink's name. It distinguishes the sink's dead letters and its fence from those
	// of other sinks that share a stream with it.
	sinks.Common
	// Env has the informers of the sink, and Owners. Two sinks that get events of one informer
	// can't share a stream: the server would drop the second one's as duplicates. Open refuses such
	// a sink, except with Mode Core and with Manage Off. The fence is used only with JetStream, and
	// a stream that is managed or verified.
	sinks.Env
	// Client is the name of the connection, as the server's monitoring shows it. Default "bridge".
	Client string
	// Timeout of one attempt to connect, and of each request to the JetStream API. Default 5s.
	Timeout time.Duration
	// AckTimeout is how long a message may stay without an answer. It begins when the last message
	// of the Publish call was written. It also bounds a write to a connection that accepts nothing.
	// Default 5s.
	AckTimeout time.Duration
	// Limits of a Publish call. Default those of sinks.Limits.
	Limits sinks.Limits
}

func (c Options) withDefaults() Options {
	c.Client = cmp.Or(c.Client, "bridge")
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Mode == KV {
		c.setBucket()
	}
	c.DeadLetterSubject = cmp.Or(c.DeadLetterSubject, DefaultDeadLetter(c.Subject, c.Stream.Name))
	c.AckTimeout = cmp.Or(c.AckTimeout, 5*time.Second)
	c.Limits.Messages = cmp.Or(c.Limits.Messages, 512)
	c.Limits.Bytes = cmp.Or(c.Limits.Bytes, 900<<10)
	c.Limits.Concurrency = cmp.Or(c.Limits.Concurrency, 4)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
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
