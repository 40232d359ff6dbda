package nats

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

const (
	contentTypeHeader = "Content-Type"
	headerPrefix      = "ce-"
)

// headerNames saves a concatenation for each attribute of each message.
var headerNames = func() map[string]string {
	names := map[string]string{}
	for name := range strings.FieldsSeq(`specversion id source type subject time timesource
		notbefore
		datacontenttype partitionkey sequence apiversion kind informer resource namespace name uid
		resourceversion previous changed manager managersubresource manageroperation lastmanager cause initial
		inferred traceparent tracestate deadletterreason deadletterattempts deadlettersubject
		deadlettersignature truncated originalsize`) {
		names[name] = headerPrefix + name
	}
	return names
}()

// encoder encodes one message after the other in the same memory. The client library copies a
// message while it publishes it, so a message is valid until the next one is encoded.
//
// Most messages have the headers of the one before. So the map of headers stays, each with a slice
// of one of the values, and the next message has its values written there; only a message with
// other headers builds the map again.
type encoder struct {
	msg    nats.Msg
	names  []string // the headers of the map, in the order in which they were set
	values []string // their values
	count  int      // of the headers of this message so far
	stale  bool     // the map is not of names and values
	header int      // what the headers take on the wire
	text   []byte   // subject, reply and message id, which the message's strings share
	body   []byte   // of messages without attributes as headers
}

var encoders = sync.Pool{New: func() any { return &encoder{msg: nats.Msg{Header: nats.Header{}}} }}

// route is where messages go and the end of their ids.
type route struct {
	subject  *event.Template
	idSuffix string
	prefix   string // of the subjects of a key-value bucket; "" for a stream of events
	bare     bool   // an entry has nothing but the mark that its key is deleted
}

// appendSubject appends the subject of an event's message.
func (r route) appendSubject(dst []byte, ev *event.Event) []byte {
	switch {
	case r.prefix == "":
		return r.subject.Append(dst, ev, event.AppendSubjectToken)
	case ev.CompactionKey != "":
		return appendAbout(append(dst, r.prefix...), ev)
	default:
		return r.subject.Append(dst, ev, event.AppendKeyToken)
	}
}

// id is an event's Nats-Msg-Id.
func (r route) id(ev *event.Event) string { return ev.MessageID() + ev.Run + r.idSuffix }

// encode begins the message of an event; more headers may be set before message returns it. reply
// appends the ack subject, nil for none.
func (e *encoder) encode(ev *event.Event, to route, encoding string, reply func([]byte) []byte) {
	e.text = to.appendSubject(e.text[:0], ev)
	subject := len(e.text)
	if reply != nil {
		e.text = reply(e.text)
	}
	replied := len(e.text)
	e.text = append(append(append(append(append(e.text, ev.Informer...), '/'), ev.ID...),
		ev.Run...), to.idSuffix...)
	// not written to again before the next message
	text := unsafe.String(unsafe.SliceData(e.text), len(e.text))
	e.msg.Subject, e.msg.Reply = text[:subject], text[subject:replied]

	e.count, e.header = 0, len("NATS/1.0\r\n")+len("\r\n")
	e.set(nats.MsgIdHdr, text[replied:])
	if to.prefix != "" {
		e.encodeEntry(ev, encoding, to.bare)
		return
	}
	if encoding == sinks.Binary {
		ev.Each(e.setAttribute)
		e.msg.Data = ev.Data
		return
	}
	e.setDocument(ev, encoding)
}

// setDocument makes the whole event the message's data.
func (e *encoder) setDocument(ev *event.Event, encoding string) {
	e.set(contentTypeHeader, sinks.DocumentType(encoding))
	e.body = sinks.AppendDocument(e.body[:0], ev, encoding)
	e.msg.Data = e.body
}

// tryEncode is encode. A panic refuses the event.
func (e *encoder) tryEncode(
	ev *event.Event, to route, encoding string, reply func([]byte) []byte,
) (err error) {
	defer sinks.Recover(&err)
	e.encode(ev, to, encoding, reply)
	return nil
}

func (e *encoder) setAttribute(name, value string) {
	value = event.HeaderValue(value)
	if e.count < len(e.names) && strings.TrimPrefix(e.names[e.count], headerPrefix) == name {
		e.set(e.names[e.count], value)
		return
	}
	header, ok := headerNames[name]
	if !ok {
		header = headerPrefix + name
	}
	e.set(header, value)
}

// set sets the next header, with its name as it is.
func (e *encoder) set(name, value string) {
	e.header += len(name) + len(": ") + len(value) + len("\r\n")
	if e.count < len(e.names) && e.names[e.count] == name {
		e.values[e.count] = value
	} else {
		e.names, e.values = append(e.names[:e.count], name), append(e.values[:e.count], value)
		e.stale = true
	}
	e.count++
}

// message returns the encoded message with the headers that were set.
func (e *encoder) message() *nats.Msg {
	if !e.stale && e.count == len(e.names) {
		return &e.msg
	}
	e.names, e.values, e.stale = e.names[:e.count], e.values[:e.count], false
	clear(e.msg.Header)
	for i, name := range e.names {
		e.msg.Header[name] = e.values[i : i+1 : i+1]
	}
	return &e.msg
}

// release returns the encoder to the pool, without references to an event.
func (e *encoder) release() {
	clear(e.values[:cap(e.values)])
	e.msg.Data = nil
	const large = 1 << 20 // one large message must not keep its memory forever
	if cap(e.body) > large {
		e.body = nil
	}
	encoders.Put(e)
}

// DeadLetter publishes the event to the dead-letter subject, with the attribute deadlettersubject:
// the subject it was intended for. The key of a deleted object is removed in any case.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if err := s.removeKey(ctx, e); err != nil {
		return err
	}
	s.inDoubt.forget(s.events.id(e)) // it may have been given up, and is not sent again
	if s.dead.subject == nil {
		return sinks.ErrNoDeadLetter
	}
	to := event.Attribute{Name: "deadlettersubject", Value: string(s.events.appendSubject(nil, e))}
	return sinks.DeadLetter(ctx, e, reason, attempts, to, func(ctx context.Context,
		letter *event.Event,
	) error {
		m := &sinks.Message{Event: letter}
		s.publish(ctx, []*sinks.Message{m}, s.dead)
		return m.Err
	})
}

// dataRefScheme begins the URIs that Claim returns: nats-object://<bucket>/<name>. The name is the
// event's message id and a digest of the payload, since sinks that share a bucket may send one
// event in several forms. Each part is escaped as in a URL.
const dataRefScheme = "nats-object://"

// ensureObjects finds the bucket for large payloads, or creates it. It never changes one.
func (s *Sink) ensureObjects(ctx context.Context, conn *nats.Conn) error {
	s.objects = nil
	bucket := s.cfg.Objects.Bucket
	if bucket == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	s.objects, err = js.ObjectStore(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.objects, err = s.createObjects(ctx, conn, js)
	}
	if err != nil {
		s.objects = nil
		return explainAPI("OBJ_"+bucket, err)
	}
	return nil
}

func (s *Sink) createObjects(
	ctx context.Context, conn *nats.Conn, js jetstream.JetStream,
) (jetstream.ObjectStore, error) {
	c := s.cfg.Objects
	if s.cfg.Stream.Manage != Create {
		return nil, operatorError("object store bucket %s does not exist: create it (nats object "+
			"add %s), or set stream.manage: create", c.Bucket, c.Bucket)
	}
	wanted := jetstream.ObjectStoreConfig{
		Bucket: c.Bucket, Description: "Payloads of CloudEvents that are too large for a " +
			"message", TTL: c.MaxAge, MaxBytes: unlimited(int64(c.MaxBytes)),
		Storage: s.cfg.Stream.storage(), Replicas: s.cfg.Stream.Replicas,
		Compression: s.cfg.Stream.Compression != "none",
	}
	if wanted.Replicas == 0 {
		wanted.Replicas = defaultReplicas(conn)
	}
	store, err := js.CreateObjectStore(ctx, wanted)
	if err == nil {
		s.log.Info("object store bucket created", "bucket", c.Bucket, "replicas", wanted.Replicas)
	}
	return store, err
}

// claimDigest is how many bytes of a payload's SHA-256 are in its name.
const claimDigest = 16

// Claim stores the event's payload in the object store.
func (s *Sink) Claim(ctx context.Context, e *event.Event) (dataref string, err error) {
	defer sinks.RecoverAnswer(&err)
	if s.objects == nil {
		return "", sinks.ErrNoClaims
	}
	if _, err := s.limits(); err != nil {
		return "", err
	}
	sum := sha256.Sum256(e.Data)
	name := e.MessageID() + "/" + hex.EncodeToString(sum[:claimDigest])
	dataref = dataRefScheme + s.cfg.Objects.Bucket + "/" + escapePath(name)
	began := time.Now()
	fail := func(err error) error {
		return classified(s.withErrorSince(time.Since(began), fmt.Errorf("object store bucket %s: %w",
			s.cfg.Objects.Bucket, err)))
	}
	isKept, err := s.isKept(ctx, name, sum)
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return "", stopped(ctx.Err())
	case err != nil:
		return "", fail(err)
	case isKept:
		return dataref, nil
	}
	const usual = 128 << 10
	meta := jetstream.ObjectMeta{
		Name: name,
		Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(usual, max(s.conn.MaxPayload()/2,
			1)))},
	}
	if _, err := s.objects.Put(ctx, meta, bytes.NewReader(e.Data)); err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return "", stopped(ctx.Err())
		}
		return "", fail(err)
	}
	return dataref, nil
}

// isKept reports whether the bucket has the payload already, of an earlier attempt.
func (s *Sink) isKept(ctx context.Context, name string, sum [sha256.Size]byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	info, err := s.objects.GetInfo(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return false, nil
	}
	return err == nil && info.Digest == "SHA-256="+base64.URLEncoding.EncodeToString(sum[:]), err
}

func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
