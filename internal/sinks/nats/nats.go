package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Sink publishes events to NATS. It implements sinks.Sink; the package comment says what it
// promises.
type Sink struct {
	cfg     Config
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
	position    position // the last result of Position
	inDoubt     *inDoubt // messages without an answer
	acks        *acks    // calls that wait for acks; unused with Mode Core
	repeats     repeats  // what the stream had before this process sent it
	reported    reported // by the server, of no call
	outage      outage   // of the connection
	newest      newest   // what a bucket holds that an earlier process has put there
	sweeps      sweeps   // how far a bucket was compared with a list
}

var (
	_ sinks.Sink         = (*Sink)(nil)
	_ sinks.Sizer        = (*Sink)(nil)
	_ sinks.ClaimChecker = (*Sink)(nil)
)

// New checks the configuration. Its error has all problems.
func New(cfg Config) (*Sink, error) {
	cfg = cfg.withDefaults()
	subject, deadLetter, err := cfg.validate()
	if err != nil {
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	s := &Sink{
		cfg:     cfg,
		log:     cfg.Log,
		metrics: newMetrics(cfg.Metrics),
		events:  route{subject: subject},
		// several sinks may share a dead-letter subject
		dead:    route{subject: deadLetter, idSuffix: "/dead/" + cfg.Sink},
		streams: &streams{byName: map[string]*stream{}},
		inDoubt: newInDoubt(), reported: reported{violations: newViolations()},
	}
	if cfg.Mode == KV {
		s.events.prefix = bucketSubject + cfg.Bucket + "."
	}
	s.several = s.cfg.severalStreams()
	s.ownSubjects = s.cfg.patterns(subject, deadLetter)
	s.streamName, _ = event.ParseTemplate(cfg.Stream.Name) // was validated
	s.acks = newAcks(s.metrics)
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
		return classified(fmt.Errorf("connect to NATS at %s: %w", s.cfg.Connection.redactedURL(), err))
	}
	url, began := s.cfg.Connection.connectedTo(conn), time.Now()
	if err := s.prepare(ctx, conn); err != nil {
		s.disconnect(conn)
		s.streams.clear()
		s.cfg.Owners.release(s)
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

// of adds the limit of an event's stream.
func (l sizeLimits) of(st *stream) sizeLimits {
	if st != nil {
		l.stream = st.maxMsgSize
	}
	return l
}

// Close ends the connection. It may be called more than once.
func (s *Sink) Close() error {
	if s.conn == nil {
		return nil
	}
	s.disconnect(s.conn)
	s.conn = nil
	s.streams.clear()
	s.cfg.Owners.release(s)
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

// reported is what the server reported.
type reported struct {
	newest     lastError
	violations violations
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
	return s.withErrorSince(s.cfg.AckTimeout+s.cfg.Connection.Timeout, err)
}

// withErrorSince is withServerError for what took some time.
func (s *Sink) withErrorSince(age time.Duration, err error) error {
	if said := s.reported.newest.since(age); said != nil {
		return fmt.Errorf("%w; the server reported: %w", err, said)
	}
	return err
}
