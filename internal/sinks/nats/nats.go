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

// Sink publishes events to NATS. It implements sinks.Sink; the package comment says what it promises.
type Sink struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	events  route
	dead    route // dead.subject is nil where there is no dead letter

	// Set by Open, constant until Close.
	conn   *nats.Conn
	closed chan struct{} // closed when the connection has ended its callbacks
	// objects is where large payloads are kept; nil for nowhere. Set by Open, constant until Close.
	objects jetstream.ObjectStore

	own        []pattern // subjects of its events and dead letters
	streamName *event.Template
	several    bool // streamName has fields
	streams    *streams
	position   position  // what Position has last said
	doubts     *doubts   // messages without an answer
	acks       *acks     // calls that wait for acks; unused with Mode Core
	repeats    repeats   // what the stream held before this process sent it
	said       lastError // what the server complained about
	outage     outage    // of the connection
}

var (
	_ sinks.Sink         = (*Sink)(nil)
	_ sinks.Sizer        = (*Sink)(nil)
	_ sinks.ClaimChecker = (*Sink)(nil)
)

// New checks the configuration. Its error tells everything that is wrong with it.
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
		dead:    route{subject: deadLetter, idSuffix: "/dead/" + cfg.Sink}, // several sinks may have one place for them
		streams: &streams{known: map[string]*stream{}},
		doubts:  newDoubts(),
	}
	s.several = s.cfg.severalStreams()
	s.own = s.cfg.patterns(subject, deadLetter)
	s.streamName, _ = event.ParseTemplate(cfg.Stream.Name) // was validated
	s.acks = newAcks(s.metrics)
	return s, nil
}

// Open connects, and with JetStream creates or checks the stream. After an error nothing is left open, and Open may be
// called again. Errors that only the operator can heal (credentials, certificates, a stream that differs) are Refused.
func (s *Sink) Open(ctx context.Context) error {
	if s.conn != nil {
		return answer(errors.New("nats sink: already open"))
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return answer(fmt.Errorf("connect to NATS at %s: %w", redactURLs(s.cfg.URL), err))
	}
	url := conn.ConnectedUrlRedacted()
	if err := s.prepare(ctx, conn); err != nil {
		s.disconnect(conn)
		s.streams.forget()
		tenants.leave(s)
		return answer(fmt.Errorf("NATS at %s: %w", url, s.withServersWord(err)))
	}
	s.conn = conn
	if s.cfg.Mode == Core {
		s.log.Warn("core NATS stores nothing: events are delivered at most once, to whoever listens at that moment; use mode jetstream to keep them", "url", url)
	}
	s.log.Info("connected", "url", url, "server", conn.ConnectedServerName(), "version", conn.ConnectedServerVersion())
	return nil
}

// prepare makes a fresh connection ready for Publish.
func (s *Sink) prepare(ctx context.Context, conn *nats.Conn) error {
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
		if err := s.begin(ctx, conn, st, nil); err != nil {
			return err
		}
	}
	if err := s.ensureObjects(ctx, conn); err != nil {
		return err
	}
	inbox := conn.NewInbox()
	s.acks.inbox = inbox
	subscription, err := conn.Subscribe(inbox+".*", s.acks.receive)
	if err != nil {
		return fmt.Errorf("subscribe to acks: %w", err)
	}
	if err := subscription.SetPendingLimits(-1, -1); err != nil { // Limits bound them; a dropped ack would cost AckTimeout
		return fmt.Errorf("subscribe to acks: %w", err)
	}
	return nil
}

// Order is ByObject: messages of one call are independent, the caller keeps those of an object apart.
func (s *Sink) Order() sinks.Order { return sinks.ByObject }

// Limits are as configured, or less where the messages on their way must not be more than the posts of a fence.
func (s *Sink) Limits() sinks.Limits { return s.fencedLimits() }

// Lane is the object: its informer and its place in the API, which stay when it is deleted and created again. With several streams the
// first event of each looks its stream up.
func (s *Sink) Lane(ctx context.Context, e *event.Event) (string, error) {
	if err := s.meet(ctx, e); err != nil {
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
		sinks.Fail(batch, answer(ErrNotOpen))
	case s.cfg.Mode == Core:
		s.publishCore(ctx, batch, to)
	default:
		s.publishJetStream(ctx, batch, to)
	}
}

// limits are asked anew for each call: after a reconnect the server may be another.
func (s *Sink) limits() (sizeLimits, error) {
	const least = 1 << 10
	l := sizeLimits{payload: int(s.conn.MaxPayload())}
	if l.payload < least {
		return l, s.disbelieve(fmt.Errorf("the server says that its max_payload is %d", l.payload))
	}
	if s.cfg.Mode == JetStream {
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
	s.streams.forget()
	tenants.leave(s)
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

// lastError is the newest complaint of the server. Such come without saying which message they are about, so they
// explain a missing ack and do not answer it.
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

// withServersWord adds what the server complained about shortly before, as "permissions violation".
func (s *Sink) withServersWord(err error) error {
	if said := s.said.since(s.cfg.AckTimeout + s.cfg.ConnectTimeout); said != nil {
		return fmt.Errorf("%w; the server said: %w", err, said)
	}
	return err
}
