package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

var _ sinks.Recaller = (*Sink)(nil)

// positionFormat is of the bytes that Position gives.
const positionFormat = 1

// savedPosition is what Position gives, as JSON.
type savedPosition struct {
	Format  int           `json:"format"`
	Streams []savedStream `json:"streams"`
	// At is when the position last changed, by the bridge's clock. A stream that is not in it was met later.
	At time.Time `json:"at"`
}

type savedStream struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Last    uint64    `json:"last"`
}

// position remembers what was last said, so that nothing new is said while nothing moves.
type position struct {
	mu      sync.Mutex
	streams []savedStream
	text    []byte
}

// Position is the last sequence of each stream that was acknowledged: what is published later gets a higher one.
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
		panic(err) // of texts and numbers
	}
	s.position.streams, s.position.text = now, text
	return text
}

// Recall reads the headers of what the streams hold behind a position. With core NATS nothing is stored, and where the stream is
// somebody else's matter its API is not used: then there is nothing to tell.
func (s *Sink) Recall(ctx context.Context, from []byte, found func(messageID string)) error {
	if len(from) == 0 || s.cfg.Mode == Core || s.cfg.Stream.Manage == Off {
		return nil
	}
	var saved savedPosition
	if err := json.Unmarshal(from, &saved); err != nil || saved.Format != positionFormat {
		s.log.Warn("the saved position is of another version: what was sent just before a crash is sent again", "position", string(from[:min(len(from), 200)]))
		return nil
	}
	js, err := s.jetStream(s.conn)
	if err != nil {
		return answer(err)
	}
	tails, err := s.tails(ctx, js, &saved)
	for i := 0; err == nil && i < len(tails); i++ {
		err = s.readTail(ctx, js, tails[i], func(m jetstream.Msg, _ uint64) {
			if id := m.Headers().Get(nats.MsgIdHdr); id != "" && s.publishes(m.Subject()) { // else of another sink in the stream
				found(strippedID(id, s.dead.idSuffix))
			}
		})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	if said := s.said.since(s.cfg.ConnectTimeout + s.cfg.AckTimeout); said != nil && errors.Is(said, nats.ErrPermissionViolation) {
		s.log.Warn("the stream can't be read back without permission for consumers: what was sent just before a crash is sent again; "+
			"grant it, or set recall: false", "err", said)
		return nil
	}
	return answer(s.withServersWord(fmt.Errorf("read back the stream: %w", err)))
}

// tail is a part of a stream: from a sequence or a time on.
type tail struct {
	stream string
	last   uint64 // the end: what comes later is the bridge's own
	first  uint64 // 0: from a time
	since  time.Time
}

// clockMargin is how far the clocks of the bridge and of the servers may be apart.
const clockMargin = 5 * time.Minute

// tails are the parts of the streams that may hold what the position does not know of.
func (s *Sink) tails(ctx context.Context, js jetstream.JetStream, saved *savedPosition) (tails []tail, err error) {
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
		limited, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
		found, err := js.Stream(limited, name)
		cancel()
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if t := tailOf(found.CachedInfo(), saved); t.last > 0 && (t.first == 0 || t.first <= t.last) {
			tails = append(tails, t)
		}
	}
	return tails, nil
}

// tailOf is where to read a stream: behind the saved sequence; all of one that was made anew, or put back, since then; and one that was not
// met yet since the position was saved.
func tailOf(info *jetstream.StreamInfo, saved *savedPosition) tail {
	t := tail{stream: info.Config.Name, last: info.State.LastSeq}
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

// namesOfStreams are those that hold subjects of the template.
func (s *Sink) namesOfStreams(ctx context.Context, js jetstream.JetStream) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	lister := js.StreamNames(ctx, jetstream.WithStreamListSubject(s.cfg.pattern(s.events.subject, nil)))
	for name := range lister.Name() {
		names = append(names, name)
	}
	return names, lister.Err()
}

// readTail reads the headers of a part of a stream, each with its sequence.
func (s *Sink) readTail(ctx context.Context, js jetstream.JetStream, t tail, found func(m jetstream.Msg, sequence uint64)) error {
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true, InactiveThreshold: 30 * time.Second, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.first}
	if t.first == 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &t.since
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	consumer, err := js.OrderedConsumer(limited, t.stream, cfg)
	cancel()
	if err != nil {
		return err
	}
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(s.cfg.ConnectTimeout))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		found(m, meta.Sequence.Stream)
		if meta.Sequence.Stream >= t.last || meta.NumPending == 0 {
			return nil
		}
	}
}
