package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/kubebridge/bridge/internal/metric"
)

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
