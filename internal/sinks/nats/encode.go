package nats

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/nats-io/nats.go"

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
		datacontenttype partitionkey sequence apiversion kind informer resource namespace name uid
		resourceversion previous manager managersubresource manageroperation lastmanager cause initial
		inferred traceparent tracestate deadletterreason deadletterattempts deadlettersubject truncated
		originalsize`) {
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
	body   []byte   // of structured messages
}

var encoders = sync.Pool{New: func() any { return &encoder{msg: nats.Msg{Header: nats.Header{}}} }}

// route is where messages go and the end of their ids.
type route struct {
	subject  *event.Template
	idSuffix string
	prefix   string // of the subjects of a key-value bucket; "" for a stream of events
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
		e.encodeEntry(ev, encoding)
		return
	}
	if encoding == Structured {
		e.set(contentTypeHeader, event.StructuredContentType)
		e.body = event.AppendStructured(e.body[:0], ev)
		e.msg.Data = e.body
	} else {
		ev.Each(e.setAttribute)
		e.msg.Data = ev.Data
	}
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
