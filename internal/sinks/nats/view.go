package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// A bucket is a view of the state: it must end with the newest event of each object that exists,
// and nothing else. Two things that do no harm in a stream of changes would spoil it. An older
// event that is sent again after a newer one replaces it, and the newer one is then dropped as a
// duplicate. And an object that is gone without an event stays.

// maxNewest bounds how many keys are remembered, as the publisher bounds the ids that it remembers.
const maxNewest = 1 << 20

// savedSequences has the sequence attribute of what an earlier process has put under a key behind
// its last checkpoint. What came before it is sent again by this process, and must not replace it.
type savedSequences struct {
	mu    sync.Mutex
	byKey map[string]string // guarded by mu, by subject
}

// found remembers a message that was read back.
func (n *savedSequences) found(subject, sequence string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKey == nil {
		n.byKey = map[string]string{}
	}
	if sequence != "" && len(n.byKey) < maxNewest {
		n.byKey[subject] = sequence
	}
}

// passed reports whether the key holds a newer event than this one.
func (n *savedSequences) passed(subject []byte, e *event.Event) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	sequence, ok := n.byKey[string(subject)]
	if ok && sequence <= e.Sequence {
		delete(n.byKey, string(subject))
		return false
	}
	return ok
}

// publishBucket publishes entries. What is older than what the key holds is answered as stored. An
// event that ends a list is stored when the bucket has no more objects than the list.
func (s *Sink) publishBucket(ctx context.Context, batch []*sinks.Message, to route) {
	sinks.Fail(batch, nil)
	var ready, ends []*sinks.Message
	var subject []byte
	for _, m := range batch {
		subject = to.appendSubject(subject[:0], m.Event)
		switch {
		case s.newest.passed(subject, m.Event):
			s.metrics.duplicates.Inc()
		case m.Exists != nil:
			ends = append(ends, m)
		default:
			ready = append(ready, m)
		}
	}
	if len(ready) > 0 {
		s.publishJetStream(ctx, ready, to)
	}
	for i, m := range ends {
		if m.Err = s.sweep(ctx, m, to); m.Err == nil {
			s.publishJetStream(ctx, ends[i:i+1], to)
		}
	}
}

// sweep deletes the keys of objects that do not exist: the state directory was lost, and with it
// what was known of them. The message ends a list. What comes before it is stored, and nothing of
// its objects is in flight.
func (s *Sink) sweep(ctx context.Context, end *sinks.Message, to route) error {
	err := s.sweepKeys(ctx, end, to)
	switch {
	case err == nil:
		s.sweeps.Done(end.Event.ID)
		return nil
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	}
	_, unread := errors.AsType[*unreadError](err)
	if said := s.missingRight(readRights); said != nil && unread {
		s.log.Warn("the bucket can't be compared with the list without permission for consumers: "+
			"keys of objects that vanished while the bridge had no state stay; grant it",
			"bucket", s.cfg.Bucket, "err", said)
		return nil
	}
	return s.unanswered(fmt.Errorf("compare bucket %s with the list: %w", s.cfg.Bucket, err))
}

// unreadError is an error of reading the bucket. A key that can't be deleted, or an object that
// can't be looked up, is none: the list's end waits for it.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error { return e.error }

func (s *Sink) sweepKeys(ctx context.Context, end *sinks.Message, to route) error {
	js, err := s.jetStream(s.conn)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	found, err := js.Stream(limited, s.cfg.Stream.Name)
	cancel()
	if err != nil {
		return &unreadError{err}
	}
	about := end.Event
	state := found.CachedInfo().State
	t := streamRange{
		stream: s.cfg.Stream.Name, subject: s.keysOf(about), last: state.LastSeq,
		first: max(s.sweeps.Get(about.ID)+1, state.FirstSeq, 1),
	}
	if state.Msgs == 0 || t.first > t.last {
		return nil
	}
	w := &sweeper{sink: s, end: end, to: to, informers: s.cfg.CurrentInformers()}
	if err := s.readRange(ctx, js, t, func(m jetstream.Msg, sequence uint64) {
		w.visit(ctx, m, sequence)
	}); err != nil {
		return &unreadError{err}
	}
	w.flush(ctx)
	return w.err
}

// removeKey stores the smallest marker that deletes the key of an object whose delete the stream
// has refused: without it the object's last state stays. A refusal of the marker too is logged.
func (s *Sink) removeKey(ctx context.Context, e *event.Event) error {
	if s.cfg.Mode != KV || e.Op != event.Deleted || e.CompactionKey != "" {
		return nil
	}
	if s.conn == nil {
		return classified(ErrNotOpen)
	}
	to := s.events
	to.bare, to.idSuffix = true, "/key"
	subject := to.appendSubject(nil, e)
	if s.newest.passed(subject, e) {
		return nil
	}
	m := &sinks.Message{Event: e}
	s.publishJetStream(ctx, []*sinks.Message{m}, to)
	if m.Err != nil && sinks.Classify(m.Err) == sinks.Refused {
		s.log.Error("the stream refuses to delete the key of a deleted object: its last state stays "+
			"in the bucket", "subject", string(subject), "err", m.Err)
		return nil
	}
	return m.Err
}

// keysOf is the pattern of the objects' keys that an event about an informer is about.
func (s *Sink) keysOf(about *event.Event) string {
	known := map[string]string{"group": cmp.Or(about.Group, "core"), "resource": about.Resource}
	if about.Namespace != "" {
		known["namespace"] = about.Namespace
	}
	return s.cfg.pattern(s.events.subject, known)
}

// sweeper collects keys of objects that do not exist, and deletes them.
type sweeper struct {
	sink      *Sink
	end       *sinks.Message
	to        route
	informers []string // that feed the sink now
	gone      []*sinks.Message
	reached   uint64
	err       error
}

// visit looks at the entry of a key.
func (w *sweeper) visit(ctx context.Context, m jetstream.Msg, sequence uint64) {
	if w.err != nil {
		return
	}
	header := m.Headers()
	if header.Get(operationHeader) == "" && header.Get(markerHeader) == "" {
		exists, err := w.exists(m.Subject(), header)
		if err != nil {
			w.err = err
			return
		}
		if !exists {
			w.gone = append(w.gone, &sinks.Message{Event: w.deleted(m.Subject(), header)})
		}
	}
	w.reached = sequence
	if len(w.gone) >= w.sink.Limits().Messages {
		w.flush(ctx)
	}
}

// exists reports whether the key stays: its object exists, or is of another informer that feeds the
// bucket.
func (w *sweeper) exists(subject string, header nats.Header) (bool, error) {
	if of := attribute(header, "informer"); of != "" && w.end.OtherInformer(of, w.informers) {
		return true, nil
	}
	namespace, name, ok := w.object(subject)
	if !ok {
		return false, nil // nobody but this sink writes objects here
	}
	return w.end.Exists(namespace, name)
}

func (w *sweeper) object(subject string) (namespace, name string, ok bool) {
	tokens := strings.Split(subject, ".")
	namespace, ok = event.ParseKeyToken(tokens[len(tokens)-2])
	if !ok {
		return "", "", false
	}
	name, ok = event.ParseKeyToken(tokens[len(tokens)-1])
	return namespace, name, ok
}

// deleted is the event of an object that is gone. The same list makes the same event.
func (w *sweeper) deleted(subject string, header nats.Header) *event.Event {
	namespace, name, _ := w.object(subject)
	return event.MissingObject{
		Namespace: namespace, Name: name, UID: attribute(header, "uid"),
		Subject:         attribute(header, "subject"),
		ResourceVersion: attribute(header, "resourceversion"),
	}.Deleted(w.end.Event)
}

// flush deletes what was collected.
func (w *sweeper) flush(ctx context.Context) {
	if w.err != nil {
		return
	}
	if len(w.gone) > 0 {
		w.sink.log.Warn("the bucket held objects that do not exist: they are deleted",
			"bucket", w.sink.cfg.Bucket, "resource", w.end.Event.PartitionKey,
			"objects", len(w.gone))
		w.sink.publishJetStream(ctx, w.gone, w.to)
		for _, m := range w.gone {
			if m.Err != nil && sinks.Classify(m.Err) == sinks.Refused {
				m.Err = w.sink.removeKey(ctx, m.Event)
			}
			if w.err = cmp.Or(w.err, m.Err); m.Err != nil {
				return
			}
		}
	}
	w.gone = w.gone[:0]
	w.sink.sweeps.Set(w.end.Event.ID, w.reached)
}

// attribute reads an attribute of a message.
func attribute(header nats.Header, name string) string {
	value := headerValue(header, headerPrefix+name)
	if decoded, err := url.PathUnescape(value); err == nil {
		return decoded
	}
	return value
}

func headerValue(header nats.Header, key string) string {
	if values := header[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}
