package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

var _ sinks.ReadBacker = (*Sink)(nil)

// positionFormat is the version of Position's format.
const positionFormat = 1

// savedPosition is what Position returns, as JSON.
type savedPosition struct {
	Format  int           `json:"format"`
	Streams []savedStream `json:"streams"`
	// At is when the position last changed, by the bridge's clock. A stream that is missing in it
	// was looked up later.
	At time.Time `json:"at"`
}

type savedStream struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Last    uint64    `json:"last"`
}

// position remembers the last result, so that an unchanged position has the same bytes.
type position struct {
	mu      sync.Mutex
	streams []savedStream
	text    []byte
}

// Position is the last sequence of each stream that was acknowledged: what is published later gets
// a higher one.
func (s *Sink) Position() []byte {
	if s.cfg.Mode == Core || s.cfg.Stream.Manage == Off {
		return nil
	}
	var now []savedStream
	for _, st := range s.streams.all() {
		now = append(now, savedStream{st.name, st.created, st.last.Load()})
	}
	s.position.mu.Lock()
	defer s.position.mu.Unlock()
	if s.position.text != nil && slices.Equal(s.position.streams, now) {
		return s.position.text
	}
	text, err := json.Marshal(savedPosition{positionFormat, now, time.Now().UTC()})
	if err != nil {
		panic(err) // can't fail: strings and numbers
	}
	s.position.streams, s.position.text = now, text
	return text
}

// ReadBack reads the headers of what the streams hold behind a position. With core NATS nothing is
// stored, and where somebody else manages the stream its API is not used: then there is nothing to
// report.
func (s *Sink) ReadBack(ctx context.Context, from []byte, found func(messageID string)) error {
	if len(from) == 0 || s.cfg.Mode == Core || s.cfg.Stream.Manage == Off {
		return nil
	}
	var saved savedPosition
	if err := json.Unmarshal(from, &saved); err != nil || saved.Format != positionFormat {
		s.log.Warn("the saved position is of another version: what was sent just before a crash "+
			"is sent again", "position", string(from[:min(len(from), 200)]))
		return nil
	}
	js, err := s.jetStream(s.conn)
	if err != nil {
		return classified(err)
	}
	tails, err := s.ranges(ctx, js, &saved)
	for i := 0; err == nil && i < len(tails); i++ {
		err = s.readRange(ctx, js, tails[i], func(m jetstream.Msg, _ uint64) {
			// otherwise of another sink in the stream
			if id := m.Headers().Get(nats.MsgIdHdr); id != "" && s.publishes(m.Subject()) {
				found(baseID(id, s.dead.idSuffix))
				if s.cfg.Mode == KV {
					s.bucket.newest.found(m.Subject(), attribute(m.Headers(), "sequence"))
				}
			}
		})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	if said := s.missingRight(readRights); said != nil {
		s.log.Warn("the stream can't be read back without permission for consumers: what was "+
			"sent just before a crash is sent again; grant it, or set readBack: false", "err", said)
		return nil
	}
	return s.unanswered(fmt.Errorf("read back the stream: %w", err))
}

// streamRange is a part of a stream: from a sequence or a time on.
type streamRange struct {
	stream string
	last   uint64 // the end: later messages are this process's own
	first  uint64 // 0: begins at a time
	// subject that is read, which may have wildcards; "" for all
	subject string
	since   time.Time
	// lag is how long to wait where a replica has no more than what is before the end: it may be
	// behind, or the rest was removed.
	lag time.Duration
}

// clockMargin is how far the clocks of the bridge and of the servers may be apart.
const clockMargin = 5 * time.Minute

// ranges returns the parts of the streams that may have messages that are missing in the position.
func (s *Sink) ranges(
	ctx context.Context, js jetstream.JetStream, saved *savedPosition,
) (tails []streamRange, err error) {
	names := []string{s.cfg.Stream.Name}
	if s.several {
		if names, err = s.namesOfStreams(ctx, js); err != nil {
			return nil, err
		}
	}
	for _, st := range saved.Streams {
		if !slices.Contains(names, st.Name) {
			names = append(names, st.Name)
		}
	}
	for _, name := range names {
		limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		found, err := js.Stream(limited, name)
		cancel()
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.compareSaved(found.CachedInfo(), saved)
		if t := rangeBehind(found.CachedInfo(), saved); t.last > 0 &&
			(t.first == 0 || t.first <= t.last) {
			tails = append(tails, t)
		}
	}
	return tails, nil
}

// rangeBehind returns the part of a stream to read: behind the saved sequence; all of a stream that
// was recreated or restored since then; and what a stream that is missing in the position got since
// it was saved.
func rangeBehind(info *jetstream.StreamInfo, saved *savedPosition) streamRange {
	t := streamRange{stream: info.Config.Name, last: info.State.LastSeq}
	if info.Config.Replicas > 1 {
		t.lag = time.Second
	}
	if info.State.Msgs == 0 {
		t.last = 0
	}
	i := slices.IndexFunc(saved.Streams, func(st savedStream) bool { return st.Name == t.stream })
	switch {
	case i < 0:
		t.since = saved.At.Add(-clockMargin)
		if info.State.LastTime.Before(t.since) {
			t.last = 0
		}
	case !saved.Streams[i].Created.Equal(info.Created), saved.Streams[i].Last > info.State.LastSeq:
		t.first = max(info.State.FirstSeq, 1)
	default:
		t.first = saved.Streams[i].Last + 1
	}
	return t
}

// namesOfStreams returns the streams that hold subjects of the template.
func (s *Sink) namesOfStreams(
	ctx context.Context, js jetstream.JetStream,
) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	lister := js.StreamNames(ctx, jetstream.WithStreamListSubject(s.cfg.pattern(s.events.subject,
		nil)))
	for name := range lister.Name() {
		names = append(names, name)
	}
	return names, lister.Err()
}

// readRange reads the headers of a part of a stream, each with its sequence.
func (s *Sink) readRange(
	ctx context.Context, js jetstream.JetStream, t streamRange, found func(m jetstream.Msg,
		sequence uint64),
) (err error) {
	defer sinks.RecoverAnswer(&err)
	cfg := jetstream.OrderedConsumerConfig{
		HeadersOnly: true, InactiveThreshold: 30 * time.Second,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.first,
		// Else Next waits forever where the stream has no leader, whatever its own limit is.
		MaxResetAttempts: 2,
	}
	if t.subject != "" {
		cfg.FilterSubjects = []string{t.subject}
	}
	if t.first == 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy,
			0, &t.since
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	consumer, err := js.OrderedConsumer(limited, t.stream, cfg)
	cancel()
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	pending := consumer.CachedInfo().NumPending
	for pending > 0 || t.lag > 0 {
		wait := s.cfg.Timeout
		if pending == 0 {
			wait = t.lag
		}
		m, err := messages.Next(jetstream.NextMaxWait(wait))
		if pending == 0 && errors.Is(err, nats.ErrTimeout) {
			return nil
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		found(m, meta.Sequence.Stream)
		if meta.Sequence.Stream >= t.last {
			return nil
		}
		pending = meta.NumPending
	}
	return nil
}

var _ sinks.EarlierRunFinder = (*Sink)(nil)

// FindEarlierRun reads the last message of the resource, and the last of the kind of about: two
// requests.
func (s *Sink) FindEarlierRun(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (bool, error) {
	if s.cfg.Mode == Core || s.cfg.Stream.Manage == Off {
		return false, nil
	}
	js, err := s.jetStream(s.conn)
	if err != nil {
		return false, classified(err)
	}
	names := []string{s.cfg.Stream.Name}
	if s.several {
		if names, err = s.namesOfStreams(ctx, js); err != nil {
			return false, classified(err)
		}
	}
	for _, name := range names {
		for _, subject := range s.subjectsLike(about) {
			if found, err := s.lastIs(ctx, js, name, subject, ours); found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// subjectsLike returns where events of the same resource go, and where those of the same kind go.
func (s *Sink) subjectsLike(about *event.Event) []string {
	known := map[string]string{
		"group": cmp.Or(about.Group, "core"), "resource": about.Resource,
		"kind": about.Kind, "informer": about.Informer,
	}
	if about.Namespace != "" {
		known["namespace"] = about.Namespace
	}
	return []string{
		s.cfg.pattern(s.events.subject, known),
		string(s.events.appendSubject(nil, about)),
	}
}

// lastIs passes the last message of a subject, which may have wildcards, to ours.
func (s *Sink) lastIs(
	ctx context.Context, js jetstream.JetStream, name, subject string, ours func(sinks.Trace) bool,
) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.unanswered(fmt.Errorf("look at stream %s: %w", name, err))
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, s.unanswered(fmt.Errorf("look at the last message of %s in stream %s: %w",
			subject, name, err))
	}
	id := m.Header.Get(nats.MsgIdHdr)
	stored, _ := new(event.Message).ReadNATS(m.Header, m.Data).Event() // what can't be read has no key
	return id != "" && ours(sinks.Trace{
		MessageID: baseID(id, s.dead.idSuffix), PartitionKey: stored.PartitionKey,
	}), nil
}

// Connect connects as a sink does, for a reader of what sinks have stored: with the same bounds on
// what the server may send. The caller closes the connection.
func Connect(ctx context.Context, o Options) (*nats.Conn, error) {
	cfg := o.withDefaults()
	s := &Sink{cfg: cfg, log: cfg.Log, metrics: newMetrics(nil)}
	s.acks = newAcks(s.metrics, newInDoubt())
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.redactedURL(), err)
	}
	return conn, nil
}

// API is the JetStream API of a connection: by its domain or prefix where it has one.
func API(conn *nats.Conn, c *Config) (jetstream.JetStream, error) {
	switch {
	case c.Domain != "":
		return jetstream.NewWithDomain(conn, c.Domain)
	case c.APIPrefix != "":
		return jetstream.NewWithAPIPrefix(conn, c.APIPrefix)
	default:
		return jetstream.New(conn)
	}
}
