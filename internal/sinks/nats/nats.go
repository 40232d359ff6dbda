package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Sink publishes events to NATS. It implements sinks.Sink; the package comment says what it
// promises.
type Sink struct {
	cfg     Options
	log     *slog.Logger
	metrics *metrics
	events  route
	dead    route // dead.subject is nil without dead letters

	// Set by Open, constant until Close.
	conn   *nats.Conn
	closed chan struct{} // closed after the connection's last callback
	// objects is where large payloads are stored; nil for nowhere. Set by Open, constant until
	// Close.
	objects jetstream.ObjectStore

	ownSubjects []pattern // subjects of its events and dead letters
	streamName  *event.Template
	several     bool // streamName has fields
	streams     *streams
	position    position       // the last result of Position
	inDoubt     *inDoubt       // messages without an answer
	acks        *acks          // calls that wait for acks; unused with Mode Core
	repeats     forgedMessages // what the stream had before this process sent it
	reported    serverErrors   // by the server, of no call
	outage      outage         // of the connection
	bucket      bucket         // with Mode KV
}

var (
	_ sinks.Sink         = (*Sink)(nil)
	_ sinks.Sizer        = (*Sink)(nil)
	_ sinks.ClaimChecker = (*Sink)(nil)
)

// New checks the configuration. Its error has all problems.
func New(cfg Options) (*Sink, error) {
	cfg = cfg.withDefaults()
	subject, deadLetter, err := cfg.check()
	if err != nil {
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	s := &Sink{
		cfg:     cfg,
		log:     cfg.Log,
		metrics: newMetrics(cfg.Registry),
		events:  route{subject: subject},
		// several sinks may share a dead-letter subject
		dead: route{subject: deadLetter, idSuffix: "/dead/" + cfg.Name},
		streams: &streams{
			owner:  &sinks.Owner{Name: cfg.Name, Informers: cfg.Informers},
			byName: map[string]*stream{},
		},
		inDoubt: newInDoubt(), reported: serverErrors{violations: newViolations()},
	}
	if cfg.Mode == KV {
		s.events.prefix = bucketSubject + cfg.Bucket + "."
	}
	s.several = s.cfg.severalStreams()
	s.ownSubjects = s.cfg.patterns(subject, deadLetter)
	s.streamName, _ = event.ParseTemplate(cfg.Stream.Name) // was validated
	s.acks = newAcks(s.metrics, s.inDoubt)
	return s, nil
}

// Open connects, and with JetStream creates or checks the stream. After an error nothing is left
// open, and Open may be called again. Errors that only the operator can fix (credentials,
// certificates, a stream that differs) are Refused.
func (s *Sink) Open(ctx context.Context) error {
	if s.conn != nil {
		return classified(errors.New("nats sink: already open"))
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return classified(fmt.Errorf("connect to NATS at %s: %w", s.cfg.redactedURL(), err))
	}
	url, began := s.cfg.connectedTo(conn), time.Now()
	if err := s.prepare(ctx, conn); err != nil {
		s.disconnect(conn)
		s.streams.clear()
		s.cfg.Owners.Release(s.streams.owner)
		return classified(fmt.Errorf("NATS at %s: %w", url, s.withErrorSince(time.Since(began), err)))
	}
	s.conn = conn
	if s.cfg.Mode == Core {
		s.log.Warn("core NATS stores nothing: events are delivered at most once, to whoever "+
			"listens at that moment; use mode jetstream to keep them", "url", url)
	}
	s.log.Info("connected", "url", url, "server", conn.ConnectedServerName(),
		"version", conn.ConnectedServerVersion())
	return nil
}

// prepare makes a new connection ready for Publish.
func (s *Sink) prepare(ctx context.Context, conn *nats.Conn) (err error) {
	defer sinks.RecoverAnswer(&err)
	if !conn.HeadersSupported() {
		return fmt.Errorf("%w: NATS 2.2 or newer is needed", nats.ErrHeadersNotSupported)
	}
	if s.cfg.Mode == Core {
		return nil
	}
	if s.cfg.Stream.Manage != Off && !s.several {
		st, err := s.ensureStream(ctx, conn, s.cfg.Stream)
		if err != nil {
			return err
		}
		if err := s.adoptStream(ctx, conn, st, nil); err != nil {
			return err
		}
	}
	if err := s.ensureObjects(ctx, conn); err != nil {
		return err
	}
	return s.acks.open(conn, s.cfg.Limits.Messages)
}

// Order is ByObject: messages of one call are independent, the caller has one message of an object
// in flight.
func (s *Sink) Order() sinks.Order { return sinks.ByObject }

// Limits are as configured, or less where there must not be more messages in flight than subjects
// of a fence.
func (s *Sink) Limits() sinks.Limits { return s.fencedLimits() }

// Lane is the object: its informer and its place in the API, which stay when it is deleted and
// created again. With several streams the first event of each looks its stream up.
func (s *Sink) Lane(ctx context.Context, e *event.Event) (string, error) {
	if err := s.resolveStream(ctx, e); err != nil {
		return "", err
	}
	return e.Informer + "/" + e.PartitionKey, nil
}

// Publish sends the messages and waits for their answers.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) {
	if len(batch) == 0 {
		return
	}
	began := time.Now()
	s.publish(ctx, batch, s.events)
	s.explain(batch)
	s.metrics.published(batch, time.Since(began))
}

func (s *Sink) publish(ctx context.Context, batch []*sinks.Message, to route) {
	switch {
	case s.conn == nil:
		sinks.Fail(batch, classified(ErrNotOpen))
	case s.cfg.Mode == Core:
		s.publishCore(ctx, batch, to)
	case s.cfg.Mode == KV:
		s.publishBucket(ctx, batch, to)
	default:
		s.publishJetStream(ctx, batch, to)
	}
}

// limits are read again for each call: after a reconnect the server may be another.
func (s *Sink) limits() (sizeLimits, error) {
	const least = 1 << 10
	l := sizeLimits{payload: int(s.conn.MaxPayload())}
	if l.payload < least {
		return l, s.distrustServer(fmt.Errorf("the server reports a max_payload of %d", l.payload))
	}
	if s.cfg.Mode != Core {
		l.header = maxHeader
	}
	return l, nil
}

// limitOf returns the limit of a stream; of all streams of events together where none is managed.
// Then nothing is known of the one that has dead letters: nil.
func (s *Sink) limitOf(st *stream, to route) *sinks.SizeLimit {
	switch {
	case st != nil:
		return st.maxMsgSize
	case to.idSuffix != "":
		return nil
	}
	return &s.streams.unmanaged
}

// Close ends the connection. It may be called more than once.
func (s *Sink) Close() error {
	if s.conn == nil {
		return nil
	}
	s.disconnect(s.conn)
	s.conn = nil
	s.streams.clear()
	s.cfg.Owners.Release(s.streams.owner)
	return nil
}

// disconnect closes a connection and waits for its last callback.
func (s *Sink) disconnect(conn *nats.Conn) {
	conn.Close()
	select {
	case <-s.closed:
	case <-time.After(5 * time.Second):
		s.log.Warn("connection still closing after 5s")
	}
}

// serverErrors is what the server reported.
type serverErrors struct {
	newest     lastError
	violations violations
	payload    payloadLimit
	denials    denials
	log        ratelimit.LogThrottle
}

// lastError is the newest error that the server reported. The server does not say which message it
// is about, so it explains a missing ack and does not answer it.
type lastError struct {
	mu   sync.Mutex
	err  error
	when time.Time
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.when = err, time.Now()
}

func (l *lastError) since(age time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil || time.Since(l.when) > age {
		return nil
	}
	return l.err
}

// withServerError adds an error that the server reported shortly before, for example "permissions
// violation".
func (s *Sink) withServerError(err error) error {
	return s.withErrorSince(s.cfg.AckTimeout+s.cfg.Timeout, err)
}

// withErrorSince is withServerError for what took some time.
func (s *Sink) withErrorSince(age time.Duration, err error) error {
	if said := s.reported.newest.since(age); said != nil {
		return fmt.Errorf("%w; the server reported: %w", err, said)
	}
	return err
}

// Check reports whether Open would succeed. It changes nothing. connect is why the server can't be
// used, stream what is wrong with the stream. A stream that is missing and would be created is no
// problem. Streams with a template as name are checked when events arrive. Whether the user may
// publish to the subjects is not checked: only publishing shows that. The sink must not be open.
func (s *Sink) Check(ctx context.Context) (connect, stream error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return classified(fmt.Errorf("connect to NATS at %s: %w", s.cfg.redactedURL(), err)), nil
	}
	defer s.disconnect(conn)
	url := s.cfg.connectedTo(conn)
	if !conn.HeadersSupported() {
		return classified(fmt.Errorf("NATS at %s: %w: NATS 2.2 or newer is needed", url,
			nats.ErrHeadersNotSupported)), nil
	}
	if s.cfg.Mode == Core || s.cfg.Stream.Manage == Off || s.several {
		return nil, nil
	}
	if err := s.checkExisting(ctx, conn); err != nil {
		return nil, classified(fmt.Errorf("NATS at %s: %w", url, s.withServerError(err)))
	}
	return nil, nil
}

// checkExisting is ensureStream without creating anything.
func (s *Sink) checkExisting(ctx context.Context, conn *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, s.cfg.Stream.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.cfg.Stream.Manage == Verify:
		return missingStream(s.cfg.Stream)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return s.creatable(ctx, js)
	case err != nil:
		return explainAPI(s.cfg.Stream.Name, err)
	}
	return s.checkStream(stream.CachedInfo().Config, s.cfg.Stream)
}

// creatable reports an error when another stream has the subjects.
func (s *Sink) creatable(ctx context.Context, js jetstream.JetStream) error {
	for _, subject := range s.cfg.Stream.Subjects {
		if _, err := js.StreamNameBySubject(ctx, subject); err == nil {
			return overlapError(ctx, js, s.cfg.Stream)
		}
	}
	return nil
}

// Limits of the protocol that the server does not report.
const (
	maxHeader = math.MaxUint16 // of a message in a stream, with its first line
	// maxSubjects keeps "HPUB subject reply sizes" within max_control_line, 4,096 by default: a
	// longer line makes the server close the connection, and the resent message would close the
	// next one.
	maxSubjects = 4096 - 64
)

// maxUsualHeader is larger than the headers of an event, unless one is unusually long.
const maxUsualHeader = 8 << 10

// Fits returns nil when the server and the stream accept the event as it would be encoded. After a
// reconnect the limits may be others, so Publish checks again.
func (s *Sink) Fits(e *event.Event) error {
	if s.conn == nil {
		return nil
	}
	limits, err := s.limits()
	if err != nil {
		return nil // Publish reports it
	}
	ofStream := s.limitOf(s.streamOf(e), s.events)
	limits.stream = ofStream.Load()
	if most := len(e.Data) + maxUsualHeader; (limits.payload <= 0 || most < limits.payload) &&
		(limits.stream <= 0 || most < limits.stream) {
		return nil
	}
	enc := encoders.Get().(*encoder)
	defer enc.release()
	enc.encode(e, s.events, s.cfg.Encoding, nil)
	if err := limits.check(enc); err != nil {
		ofStream.Exceed()
		if enc.header+len(enc.msg.Data) > limits.payload {
			s.reported.payload.exceeded.Store(true)
		}
		return classified(err)
	}
	return nil
}

// sizeLimits are the sizes that the server accepts; 0 means no limit.
type sizeLimits struct {
	payload int // max_payload: headers and data
	stream  int // the stream's max_msg_size: headers and data
	header  int
}

// check reports whether the server would refuse for its size what was encoded last. Checked here it
// costs no connection: the server answers a payload above max_payload by closing the connection.
func (l sizeLimits) check(e *encoder) error {
	msg, header := &e.msg, e.header
	size := header + len(msg.Data)
	switch {
	case len(msg.Subject)+len(msg.Reply) > maxSubjects:
		return fmt.Errorf("%w: its subject has %d bytes, at most %d fit", ErrTooLarge,
			len(msg.Subject), maxSubjects-len(msg.Reply))
	case l.header > 0 && header > l.header:
		return fmt.Errorf("%w: its headers have %d bytes, a stream takes %d", ErrTooLarge, header,
			l.header)
	case l.payload > 0 && size > l.payload:
		return fmt.Errorf("%w: %d bytes with headers, the server's max_payload is %d", ErrTooLarge,
			size, l.payload)
	case l.stream > 0 && size > l.stream:
		return fmt.Errorf("%w: %d bytes with headers, the stream's max_msg_size is %d", ErrTooLarge,
			size, l.stream)
	default:
		return nil
	}
}

type metrics struct {
	messages    *metric.Counters
	duplicates  *metric.Counter
	repaired    *metric.Counter
	unexpected  *metric.Counters
	seconds     prometheus.Histogram
	strayAcks   *metric.Counters
	disconnects *metric.Counter
	connected   *metric.Gauge
}

const outcomeStored = "stored"

func newMetrics(registerer prometheus.Registerer) *metrics {
	f := metric.With(registerer)
	return &metrics{
		messages: f.Counters("bridge_nats_messages_total",
			"Messages given to Publish by their result: stored, or the class of their error.",
			"outcome", outcomeStored, sinks.Retry.String(), sinks.Reconnect.String(),
			sinks.Refused.String(), sinks.Stopped.String()),
		duplicates: f.Counter("bridge_nats_duplicates_total",
			"Messages among the stored that the stream held already: resent after a lost ack or "+
				"a restart."),
		repaired: f.Counter("bridge_nats_repaired_keys_total",
			"Keys of a bucket that somebody else had deleted or replaced; their objects were stored "+
				"again."),
		unexpected: f.Counters("bridge_nats_unexpected_duplicates_total",
			"Messages that the stream held already when this process sent them for the first "+
				"time: unchecked, checked (of an earlier process), forged, or replaced in a "+
				"bucket (both were sent again).",
			"origin", originUnchecked, originChecked, originForged, originReplaced),
		seconds: f.Histogram("bridge_nats_publish_seconds",
			"Time of a Publish call, from its first message to its last answer.",
			prometheus.ExponentialBuckets(0.0005, 2, 15)),
		strayAcks: f.Counters("bridge_nats_stray_acks_total",
			"Stray answers: late (after the timeout; believed where it says that the message is "+
				"stored), and not believed: foreign (not from the stream, or not possible), "+
				"unordered (of a sequence that the stream has passed; the message is sent again).",
			"reason", late.String(), foreign.String(), unordered.String()),
		disconnects: f.Counter("bridge_nats_disconnects_total", "Connections that broke."),
		connected:   f.Gauge("bridge_nats_connected", "1 while there is a connection."),
	}
}

// published counts the answers of one call.
func (m *metrics) published(batch []*sinks.Message, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	stored := 0
	for _, message := range batch {
		if message.Err == nil {
			stored++
			continue
		}
		m.messages.With(sinks.Classify(message.Err).String()).Inc()
	}
	m.messages.With(outcomeStored).Add(float64(stored))
}
