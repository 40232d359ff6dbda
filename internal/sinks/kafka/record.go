package kafka

import (
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// encoder turns events into records. It is immutable.
type encoder struct {
	structured bool
	headers    []byte // of every record, encoded; they do not change
	count      int    // of headers
	tombstones bool
	eventTime  bool
}

const structuredContentType = event.StructuredContentType + "; charset=UTF-8"

// put appends the record of an event, and after a Deleted the tombstone where the configuration
// asks for one. now is the record's time unless the event's own is asked for.
func (c encoder) put(w *batchWriter, e *event.Event, now time.Time) {
	at := now
	if c.eventTime && !e.Time.IsZero() {
		at = e.Time
	}
	// A record without a key is not one with an empty key: compacted topics distinguish the two.
	var key *string
	switch {
	case e.CompactionKey != "":
		key = &e.CompactionKey
	case e.PartitionKey != "":
		key = &e.PartitionKey
	}
	if c.structured {
		c.putStructured(w, e, at, key)
	} else {
		c.putBinary(w, e, at, key)
	}
	if c.tombstones && e.Op == event.Deleted && key != nil {
		w.add(at, key, nil, nil, 0)
	}
}

// tryPut is put. A panic refuses the event.
func (c encoder) tryPut(w *batchWriter, e *event.Event, now time.Time) (err error) {
	defer sinks.Recover(&err)
	c.put(w, e, now)
	return nil
}

// putBinary writes the attributes as headers and the payload as the value. The payload's media type
// is the header content-type. The value of an event without payload is empty: a null would delete
// its object's key in a compacted topic. That of an event about an informer is null, since engines
// pass over that (it has a payload, but in Debezium's form).
func (c encoder) putBinary(w *batchWriter, e *event.Event, at time.Time, key *string) {
	count, headers := 0, w.headers[:0]
	e.Each(func(name, value string) {
		if name == "datacontenttype" {
			headers = appendString(headers, "content-type")
		} else {
			headers = appendAttributeName(headers, name)
		}
		headers = appendString(headers, value)
		count++
	})
	w.headers = c.appendOwn(headers, e)
	value := e.Data
	if len(value) == 0 && e.CompactionKey == "" {
		value = []byte{}
	}
	w.add(at, key, value, w.headers, count+c.count+1)
}

// putStructured writes the whole event as the value.
func (c encoder) putStructured(w *batchWriter, e *event.Event, at time.Time, key *string) {
	w.value = event.AppendStructured(w.value[:0], e)
	w.headers = appendString(w.headers[:0], "content-type")
	w.headers = appendString(w.headers, structuredContentType)
	w.headers = c.appendOwn(w.headers, e)
	w.add(at, key, w.value, w.headers, c.count+2)
}

// These are not attributes of the event. They distinguish records with the same id: the events of
// two informers that select the same object, and those of two sinks that share a topic, for example
// a dead-letter topic. Recall recognizes the sink's records by them.
const (
	informerHeader = "informer"
	sinkHeader     = "sink"
)

// idHeader is the header of the attribute id.
const idHeader = "ce_id"

// appendOwn appends the headers that are not attributes.
func (c encoder) appendOwn(dst []byte, e *event.Event) []byte {
	dst = append(dst, c.headers...)
	return appendString(appendString(dst, informerHeader), e.Informer)
}

// appendAttributeName appends the header name of an attribute with its length: ce_id.
func appendAttributeName(dst []byte, name string) []byte {
	const prefix = "ce_"
	if n := len(prefix) + len(name); n < 64 {
		dst = append(dst, byte(n<<1)) // zig-zag: one byte below 64
		dst = append(dst, prefix...)
		return append(dst, name...)
	}
	return appendString(dst, prefix+name)
}
