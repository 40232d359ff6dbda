package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// A key-value bucket is a stream whose settings and headers the clients of NATS agree on: the
// stream KV_<bucket> keeps the last message of each subject $KV.<bucket>.<key>, and a message with
// the header KV-Operation says that its key is deleted.

// Beginnings of the stream's name and of the subjects of a bucket.
const (
	bucketStream  = "KV_"
	bucketSubject = "$KV."
)

// keyTemplate is the key of an object.
const keyTemplate = "{group}.{resource}.{namespace}.{name}"

// Headers of an entry.
const (
	operationHeader = "KV-Operation"
	ttlHeader       = "Nats-TTL"
	markerHeader    = "Nats-Marker-Reason" // the server has deleted the key
	operationDelete = "DEL"
)

// markerTTL is how long the marker of a deleted object stays, where the server can remove it. A
// reader that was gone for longer compares keys, as one that reads for the first time.
const markerTTL = 24 * time.Hour

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// setBucket sets what follows from the name of the bucket.
func (c *Options) setBucket() {
	c.Subject = bucketSubject + c.Bucket + "." + keyTemplate
	c.DeadLetterSubject = NoDeadLetter
	c.Stream.Name = bucketStream + c.Bucket
	c.Stream.Subjects = []string{bucketSubject + c.Bucket + ".>"}
	c.Stream.MaxAge = 0
	c.Stream.MaxMsgsPerSubject = 1
	c.Stream.bucket = true
}

func (c *Options) checkBucket() error {
	if !bucketName.MatchString(c.Bucket) {
		return fmt.Errorf("bucket %q: want letters, digits, dashes and underscores", c.Bucket)
	}
	if c.Stream.Manage == Off {
		return errors.New("stream.manage off: mode kv reads the bucket back, so it needs the " +
			"JetStream API")
	}
	return nil
}

// asBucket changes the settings of a stream to those that the clients of NATS expect of a bucket.
func asBucket(config *jetstream.StreamConfig) {
	config.Description = "Kubernetes objects as they are, as CloudEvents"
	config.Discard = jetstream.DiscardNew
	config.AllowRollup = true
	config.DenyDelete = true
	config.DenyPurge = false
	config.AllowMsgTTL = true
}

// bucketDifferences returns the settings with which a bucket would not hold the state of each
// object that exists, under the names that a bucket and its stream have for them.
func bucketDifferences(actual jetstream.StreamConfig) (problems []string) {
	differ := func(when bool, format string, args ...any) {
		if when {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	differ(actual.MaxMsgsPerSubject != 1, "history (max_msgs_per_subject) is %d, wanted 1",
		actual.MaxMsgsPerSubject)
	differ(actual.MaxAge != 0, "ttl (max_age) is %v, wanted none: an object that does not change "+
		"would vanish", actual.MaxAge)
	differ(actual.MaxMsgs > 0, "max_msgs is %d, wanted no limit", actual.MaxMsgs)
	differ(actual.MaxBytes > 0 && actual.Discard != jetstream.DiscardNew, "discard is old with "+
		"max_bytes %d, wanted discard new: a full bucket would lose objects", actual.MaxBytes)
	differ(!actual.AllowRollup, "allow_rollup_hdrs is off, which clients of a bucket need")
	differ(len(actual.Sources) > 0, "it has sources, which write to it too")
	differ(actual.SubjectTransform != nil, "it has a subject_transform")
	return problems
}

// appendAbout appends the key of an event about an informer. No object's key begins with "_":
// AppendKeyToken never returns a token that does.
func appendAbout(dst []byte, e *event.Event) []byte {
	dst = append(dst, '_')
	for i, part := range strings.Split(e.CompactionKey, "/") {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = event.AppendKeyToken(dst, part)
	}
	return dst
}

// encodeEntry sets headers and data of an entry. Its attributes are headers in any encoding, so
// that the order can be checked without the value, and a delete has none.
func (e *encoder) encodeEntry(ev *event.Event, encoding string, bare bool) {
	e.msg.Data = nil
	deleted := ev.Op == event.Deleted && ev.CompactionKey == ""
	switch {
	case bare:
		e.set(operationHeader, operationDelete)
		return
	case deleted:
		e.set(operationHeader, operationDelete)
	case encoding == sinks.Binary:
		e.msg.Data = ev.Data
	default:
		e.setDocument(ev, encoding)
	}
	ev.Each(func(name, value string) {
		if !deleted || name != "datacontenttype" {
			e.setAttribute(name, value)
		}
	})
}

// setTTL lets the server remove the marker of a deleted object, where it can.
func (e *encoder) setTTL(ev *event.Event, to route, st *stream) {
	if to.prefix != "" && st != nil && st.allowsTTL && ev.Op == event.Deleted &&
		ev.CompactionKey == "" {
		e.set(ttlHeader, markerTTL.String())
	}
}

// A bucket is a view of the state: it must end with the newest event of each object that exists,
// and nothing else. Two things that do no harm in a stream of changes would spoil it. An older
// event that is sent again after a newer one replaces it, and the newer one is then dropped as a
// duplicate. And an object that is gone without an event stays.

// bucket is what the sink knows of one.
type bucket struct {
	newest savedSequences       // what an earlier process has put there
	sweeps sinks.Sweeps[uint64] // the sequence up to which it was compared with a list
	rows   rows
}

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
	var ready, ends, repaired []*sinks.Message
	var subject []byte
	for _, m := range batch {
		subject = to.appendSubject(subject[:0], m.Event)
		isCompared, isThere := s.bucket.rows.has(subject, m.Event)
		switch {
		case s.bucket.newest.passed(subject, m.Event):
			s.metrics.duplicates.Inc()
		case isThere:
		case isCompared:
			repaired = append(repaired, m)
			ready = append(ready, m)
		case m.Exists != nil:
			ends = append(ends, m)
		default:
			ready = append(ready, m)
		}
	}
	if len(ready) > 0 {
		s.publishJetStream(ctx, ready, to)
		s.recordRows(ready, repaired, to)
	}
	for i, m := range ends {
		if m.Err = s.sweep(ctx, m, to); m.Err == nil {
			s.publishJetStream(ctx, ends[i:i+1], to)
		}
	}
}

// recordRows records what was stored for the comparison that runs, and what it has repaired.
func (s *Sink) recordRows(batch, repaired []*sinks.Message, to route) {
	if !s.bucket.rows.active() {
		return
	}
	for _, m := range batch {
		if m.Err == nil {
			s.bucket.rows.wrote(s.subjectOf(m, to), m.Event)
		}
	}
	for _, m := range repaired {
		if m.Err == nil {
			s.metrics.repaired.Inc()
			s.bucket.rows.repairs.Warn(s.log, "a key of the bucket was not as it must be: its object is stored again",
				"bucket", s.cfg.Bucket, "key", s.subjectOf(m, to))
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
		s.bucket.sweeps.Done(end.Event.ID)
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
		first: max(s.bucket.sweeps.Get(about.ID)+1, state.FirstSeq, 1),
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
	if s.bucket.newest.passed(subject, e) {
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
	w.sink.bucket.sweeps.Set(w.end.Event.ID, w.reached)
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
