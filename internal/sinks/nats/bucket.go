package nats

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

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

// encodeEntry sets headers and data of an entry. Its attributes are headers in either encoding, so
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
	case encoding == sinks.Structured:
		e.set(contentTypeHeader, event.StructuredContentType)
		e.body = event.AppendStructured(e.body[:0], ev)
		e.msg.Data = e.body
	default:
		e.msg.Data = ev.Data
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
