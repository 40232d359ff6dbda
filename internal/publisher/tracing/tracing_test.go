package tracing_test

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/publisher/tracing"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// receiver takes OTLP over HTTP, as a collector does.
type receiver struct {
	*httptest.Server
	hang chan struct{} // closed to let requests continue; nil not to hold them

	mu    sync.Mutex
	spans []*v1.Span // guarded by mu
	paths []string   // guarded by mu
	names []string   // guarded by mu: of services
}

func newReceiver(t *testing.T, hang chan struct{}) *receiver {
	r := &receiver{hang: hang}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if r.hang != nil {
			<-r.hang
		}
		body, err := io.ReadAll(request.Body)
		var message collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &message) != nil {
			t.Errorf("no OTLP: %v", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paths = append(r.paths, request.URL.Path)
		for _, rs := range message.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					r.names = append(r.names, a.Value.GetStringValue())
				}
			}
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// items are settled events with the traceparents of an informer and a sink.
func items(parent func(source, id string) string, ids ...string) []*publisher.Item {
	var list []*publisher.Item
	for _, id := range ids {
		list = append(list, &publisher.Item{Message: sinks.Message{Event: &event.Event{
			ID: id, Source: "/clusters/test", Type: "dev.kubebridge.resource.added", Subject: "api/v1/namespaces/shop/pods/" + id, ObjectAttributes: event.ObjectAttributes{Namespace: "shop"}, Informer: "all",
			Data: []byte(`{"secret":"hunter2"}`), Observed: time.Now().Add(-time.Second), TraceParent: parent("/clusters/test", id),
		}}})
	}
	return list
}

// run runs a tracer; what it returns ends it, with everything sent.
func run(t *testing.T, cfg tracing.Config) (tracer *tracing.Tracer, end func()) {
	t.Helper()
	tracer, err := tracing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tracer.Run(ctx) }()
	return tracer, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A span lasts from observed to settled, and is in the trace of the event.
func TestSpan(t *testing.T) {
	r := newReceiver(t, nil)
	registry := prometheus.NewRegistry()
	tracer, end := run(t, tracing.Config{Endpoint: r.URL, Sample: 1, Registerer: registry})
	list := items(tracer.Parent("all", "lake"), "u/1")
	tracer.Settled("lake", list)
	end()
	if len(r.spans) != 1 || r.paths[0] != "/v1/traces" || r.names[0] != "bridge" {
		t.Fatalf("got %v at %v from %v", r.spans, r.paths, r.names)
	}
	s := r.spans[0]
	if want := "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"; list[0].Message.Event.TraceParent != want {
		t.Errorf("the event says %s, its span %s", list[0].Message.Event.TraceParent, want)
	}
	if took := time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano); took < time.Second || took > time.Minute {
		t.Errorf("it took %v", took)
	}
	got := map[string]string{}
	for _, a := range s.Attributes {
		got[a.Key] = a.Value.GetStringValue()
	}
	if s.Kind != v1.Span_SPAN_KIND_PRODUCER || len(s.ParentSpanId) != 0 || got["cloudevents.event_id"] != "u/1" || got["bridge.sink"] != "lake" || got["bridge.outcome"] != "acknowledged" {
		t.Errorf("got %v", s)
	}
	if text := s.String(); regexp.MustCompile("hunter2").MatchString(text) {
		t.Errorf("the payload is in the span: %s", text)
	}
	if n, err := testutil.GatherAndCount(registry, "bridge_tracing_spans_total"); n != 3 || err != nil {
		t.Errorf("%d outcomes, %v", n, err)
	}
}

// A traceparent is made of the event alone.
// Whoever sends an event again, after a crash or from another replica, says the same.
func TestTraceparent(t *testing.T) {
	parent := func(sample float64, informer, sink, id string) string {
		tracer, err := tracing.New(tracing.Config{Endpoint: "http://127.0.0.1:1", Sample: sample})
		if err != nil {
			t.Fatal(err)
		}
		return tracer.Parent(informer, sink)("/clusters/test", id)
	}
	first := parent(1, "all", "lake", "u/1")
	// It must not change with the version of the bridge either: this is the event's as long as
	// there are traces of it.
	if want := "00-"; first[:3] != want || !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(first) {
		t.Errorf("got %s", first)
	}
	if again := parent(1, "all", "lake", "u/1"); again != first {
		t.Errorf("%s, and again %s", first, again)
	}
	if other := parent(1, "all", "audit", "u/1"); other[:35] != first[:35] || other == first {
		t.Errorf("another sink is to be another span of the same trace: %s, %s", first, other)
	}
	if other := parent(1, "all", "lake", "u/2"); other[:35] == first[:35] {
		t.Errorf("another change has the same trace: %s", other)
	}
	if off := parent(0, "all", "lake", "u/1"); off != first[:53]+"00" {
		t.Errorf("not sampled: %s, sampled: %s", off, first)
	}
}

// A sample has its share of the spans, and the rest is not sent.
func TestSampling(t *testing.T) {
	r := newReceiver(t, nil)
	tracer, end := run(t, tracing.Config{Endpoint: r.URL, Sample: 0.1})
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = "u/" + time.Duration(i).String()
	}
	tracer.Settled("lake", items(tracer.Parent("all", "lake"), ids...))
	end()
	if n := len(r.spans); n < 100 || n > 300 {
		t.Errorf("%d of 2000 spans were sent, want about 200", n)
	}
}

// A collector that hangs delays nobody, and its backlog is bounded.
func TestHangingCollector(t *testing.T) {
	hang := make(chan struct{})
	r := newReceiver(t, hang)
	registry := prometheus.NewRegistry()
	tracer, end := run(t, tracing.Config{Endpoint: r.URL, Sample: 1, Registerer: registry})
	parent := tracer.Parent("all", "lake")
	began := time.Now()
	for range 100 {
		tracer.Settled("lake", items(parent, make([]string, 100)...))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	close(hang)
	counts := map[string]float64{}
	testkit.Eventually(t, "all spans are accounted for", func() bool {
		sum := 0.0
		for _, result := range []string{"exported", "dropped", "failed"} {
			counts[result] = testkit.Metric(t, registry, "bridge_tracing_spans_total "+result)
			sum += counts[result]
		}
		return sum == 10_000
	})
	end()
	r.Close()
	if counts["dropped"] < 5000 || counts["exported"] < 1 {
		t.Errorf("dropped and exported: %v", counts)
	}
	if len(r.spans) != int(counts["exported"]) {
		t.Errorf("%d arrived, %v are said to", len(r.spans), counts["exported"])
	}
}
