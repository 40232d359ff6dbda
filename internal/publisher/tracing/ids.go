package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"

	"go.opentelemetry.io/otel/trace"
)

// ids of a span, made of what it is about.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// makeIDs gives the trace of a change, and the span of its way to one place (an informer and a
// sink).
func makeIDs(source, id string, place uint64) ids {
	var text [256]byte
	sum := sha256.Sum256(append(append(append(text[:0], source...), 0), id...))
	var made ids
	copy(made.trace[:], sum[:16])
	binary.BigEndian.PutUint64(made.span[:], binary.BigEndian.Uint64(sum[16:24])^place)
	// Zeros are no ids. That takes 2^64 events.
	made.trace[0] |= 1
	made.span[0] |= 1
	return made
}

// placeOf is a number for an informer and a sink.
func placeOf(informer, sink string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(informer + "\x00" + sink)) // it never fails
	return h.Sum64()
}

// The parts of a traceparent: version, trace, span, flags.
const (
	traceAt = len("00-")
	spanAt  = traceAt + 32 + 1
	flagsAt = spanAt + 16 + 1
	length  = flagsAt + 2
)

// traceparent is the ids in the form of W3C's trace context.
func (i ids) traceparent(sampled bool) string {
	var text [length]byte
	copy(text[:], "00-")
	hex.Encode(text[traceAt:], i.trace[:])
	text[spanAt-1] = '-'
	hex.Encode(text[spanAt:], i.span[:])
	copy(text[flagsAt-1:], "-00")
	if sampled {
		text[length-1] = '1'
	}
	return string(text[:])
}

// parse reads a traceparent of ours. ok is false for one that is not sampled, and for none.
func parse(text string) (made ids, ok bool) {
	if len(text) != length || text[length-1] != '1' {
		return made, false
	}
	_, traceErr := hex.Decode(made.trace[:], []byte(text[traceAt:spanAt-1]))
	_, spanErr := hex.Decode(made.span[:], []byte(text[spanAt:flagsAt-1]))
	return made, traceErr == nil && spanErr == nil
}

// given is the generator of ids that are known already: they come in the context.
type given struct{}

type givenKey struct{}

// NewIDs implements sdktrace.IDGenerator.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	made, _ := ctx.Value(givenKey{}).(ids)
	return made.trace, made.span
}

// NewSpanID implements sdktrace.IDGenerator. There are no spans within spans.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	made, _ := ctx.Value(givenKey{}).(ids)
	return made.span
}
