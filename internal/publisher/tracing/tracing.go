// Package tracing reports to an OpenTelemetry collector how long each change took from when the
// bridge observed it to when a sink had it. It gives each event the context of that span, as
// CloudEvents' distributed tracing extension has it (traceparent). So what consumers do with an
// event is part of its trace.
//
// It takes in the source and id of events, for their context, and settled items, for their spans.
// It hands spans to a collector over OTLP/HTTP.
//
// What it promises. Ids of traces and spans are made of the event's source, id, informer and sink
// alone: an event that is sent again, after a crash or by another replica, has the same
// traceparent, and all events of one change are one trace. Whether a trace is sampled depends on
// its id alone too. Nobody on the road waits: what the collector does not take is bounded in
// memory, and dropped and counted beyond. Nothing of an object is in a span but its name and place.
//
// Run ends with its context, after the queued spans were sent or some seconds have passed.
package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
)

// Config of a Tracer.
type Config struct {
	// Endpoint is the collector's URL. Without a path, /v1/traces is asked.
	Endpoint string
	// Sample is the share of traces that are sent, 0 to 1.
	Sample float64
	// Version of the bridge.
	Version string
	// Log may be nil.
	Log *slog.Logger
	// Registerer of the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Tracer makes trace contexts and spans. Its methods may be called concurrently, Run once.
type Tracer struct {
	sampler  sdktrace.Sampler
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	metrics  *metrics
	// waiting are the spans that are not answered for yet.
	waiting atomic.Int64
}

// maxWaiting bounds the spans that wait for the collector. It is what the library takes for its
// queue, too.
const maxWaiting = 2048

// flushTime is how long an end waits for the collector.
const flushTime = 5 * time.Second

// New makes a Tracer. It asks no server.
func New(cfg Config) (*Tracer, error) {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "tracing")
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing: endpoint: %w", err)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/v1/traces"
	}
	client, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(endpoint.String()))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	// The library gives its errors to a global handler; ours come back from the exporter.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Debug("OpenTelemetry", "err", err)
	}))
	t := &Tracer{
		sampler: sdktrace.TraceIDRatioBased(cfg.Sample),
		metrics: newMetrics(cfg.Registerer),
	}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // what is not sampled never gets so far
		sdktrace.WithIDGenerator(given{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "bridge"), attribute.String("service.version",
				cfg.Version),
		)),
		// Its queue holds all that may wait, so it never drops by itself.
		sdktrace.WithBatcher(&counted{SpanExporter: client, tracer: t, log: log},
			sdktrace.WithMaxQueueSize(maxWaiting)),
	)
	t.tracer = t.provider.Tracer("github.com/kubebridge/bridge")
	return t, nil
}

// Run works until ctx ends, and then sends the queued spans.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	// what it says was reported by the exporter; and a collector that is unavailable is no failure
	// of the bridge
	_ = t.provider.Shutdown(ctx)
	return nil
}

// WaitReady returns at once: nothing waits for a collector.
func (t *Tracer) WaitReady(context.Context) error { return nil }

// Parent gives the function that makes the traceparent of the events of an informer for a sink.
func (t *Tracer) Parent(informer, sink string) func(source, id string) string {
	place := placeOf(informer, sink)
	return func(source, id string) string {
		made := makeIDs(source, id, place)
		return made.traceparent(t.sampled(made.trace))
	}
}

func (t *Tracer) sampled(id trace.TraceID) bool {
	return t.sampler.ShouldSample(sdktrace.SamplingParameters{
		ParentContext: context.Background(),
		TraceID:       id,
	}).Decision == sdktrace.RecordAndSample
}

// Settled makes the spans of items that are settled. It never waits.
func (t *Tracer) Settled(sink string, items []*publisher.Item) {
	now := time.Now()
	for _, it := range items {
		made, ok := parse(it.Message.Event.TraceParent)
		if !ok {
			continue
		}
		if t.waiting.Add(1) > maxWaiting {
			t.waiting.Add(-1)
			t.metrics.spans[dropped].Inc()
			continue
		}
		t.span(made, sink, it, now)
	}
}

// span makes one span, from when the change was observed until now.
func (t *Tracer) span(made ids, sink string, it *publisher.Item, now time.Time) {
	e := it.Message.Event
	ctx := context.WithValue(context.Background(), givenKey{}, made)
	_, span := t.tracer.Start(ctx, "CloudEvents Create "+e.Type, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithTimestamp(e.Observed), trace.WithAttributes(attributes(e, sink, it)...))
	span.End(trace.WithTimestamp(now))
}

// attributes are those of OpenTelemetry's conventions for CloudEvents, and what is the bridge's
// own. The strings may share memory with the object, which waits with them for a moment.
func attributes(e *event.Event, sink string, it *publisher.Item) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("cloudevents.event_id", e.ID),
		attribute.String("cloudevents.event_source", e.Source),
		attribute.String("cloudevents.event_spec_version", event.SpecVersion),
		attribute.String("cloudevents.event_type", e.Type),
		attribute.String("cloudevents.event_subject", e.Subject),
		attribute.String("k8s.cluster.name", e.Cluster),
		attribute.String("bridge.informer", e.Informer),
		attribute.String("bridge.sink", sink),
		attribute.String("bridge.outcome", string(it.Outcome())),
		attribute.Int("bridge.attempts", it.Attempts()),
		attribute.Int("bridge.payload_bytes", len(e.Data)),
	}
	if e.Namespace != "" {
		list = append(list, attribute.String("k8s.namespace.name", e.Namespace))
	}
	return list
}

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

// Outcomes of spans.
const (
	exported = "exported" // the collector has it
	failed   = "failed"   // the collector did not take it, also when it was asked again
	dropped  = "dropped"  // too many waited
)

type metrics struct{ spans map[string]*metric.Counter }

func newMetrics(registerer prometheus.Registerer) *metrics {
	spans := metric.With(registerer).Counters("bridge_tracing_spans_total",
		"Spans by what became of them: exported, failed (the collector did not take them), "+
			"dropped (too many waited).",
		"outcome")
	m := &metrics{spans: map[string]*metric.Counter{}}
	for _, outcome := range []string{exported, failed, dropped} {
		m.spans[outcome] = spans.With(outcome)
	}
	return m
}

// counted is an exporter that counts, and logs failures.
type counted struct {
	sdktrace.SpanExporter
	tracer *Tracer
	log    *slog.Logger
	logged atomic.Int64 // when the last failure was, in Unix seconds
}

// complainEvery keeps a collector that is unavailable from filling the log.
const complainEvery = time.Minute

// ExportSpans implements sdktrace.SpanExporter.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.tracer.waiting.Add(-int64(len(spans)))
	if err == nil {
		c.tracer.metrics.spans[exported].Add(float64(len(spans)))
		return nil
	}
	c.tracer.metrics.spans[failed].Add(float64(len(spans)))
	if now := time.Now().Unix(); now-c.logged.Load() >= int64(complainEvery/time.Second) {
		c.logged.Store(now)
		c.log.Warn("spans are lost: the collector does not take them; events are not affected",
			"spans", len(spans), "err", err)
	}
	return err
}
