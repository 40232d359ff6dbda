package publisher_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Open is tried again, and Add waits for it.
func TestOpenRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		attempts := 0
		sink.OnOpen = func(attempt int) error {
			attempts = attempt
			return []error{testkit.ErrUnreachable, testkit.ErrBusy, errors.New("of no class"), nil}[attempt-1]
		}
		p := start(t, sink, publisher.Config{})
		begun := time.Now()
		p.add(r.items("a/1"))
		if took := time.Since(begun); took < 350*time.Millisecond || took > 700*time.Millisecond {
			t.Errorf("opened after %v, want three backoffs of 100, 200 and 400 ms, each shortened by up to a half", took)
		}
		p.drain()
		if attempts != 4 {
			t.Errorf("opened at attempt %d, want 4", attempts)
		}
		select {
		case <-p.Opened():
		default:
			t.Error("Opened is not closed")
		}
	})
}

// An error of Open that needs the operator ends Run.
func TestOpenPermanentError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newSink(t, sinks.ByObject)
		sink.OnOpen = func(int) error { return errBadAuth }
		p, err := publisher.New(publisher.Config{Sink: sink, Name: "audit"})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(t.Context()); !errors.Is(err, errBadAuth) {
			t.Errorf("Run = %v, want the sink's error", err)
		}
		if err := p.Add(t.Context(), nil); !errors.Is(err, publisher.ErrStopped) {
			t.Errorf("Add = %v, want ErrStopped", err)
		}
		if err := p.Run(t.Context()); err == nil {
			t.Error("a second Run was let through")
		}
	})
}

// A stop while opening ends Run without an error.
func TestOpenStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newSink(t, sinks.ByObject)
		sink.OnOpen = func(int) error { return testkit.ErrUnreachable }
		p := start(t, sink, publisher.Config{})
		time.Sleep(time.Minute)
		p.stop() // fails the test when Run returns an error
		if !sink.Closed() {
			t.Error("the sink was not closed")
		}
	})
}

// New refuses a configuration that makes no sense.
func TestConfigProblems(t *testing.T) {
	sink := newSink(t, sinks.ByObject)
	bad := publisher.Config{Sink: sink}
	bad.RateLimit.PerSecond = -1
	for name, cfg := range map[string]publisher.Config{
		"no sink":        {},
		"negative bound": {Sink: sink, MaxBytes: -1},
		"negative delay": {Sink: sink, Retry: publisher.Retry{Max: -1}},
		"negative rate":  bad,
	} {
		if _, err := publisher.New(cfg); err == nil {
			t.Errorf("%s: New took it", name)
		}
	}
}

// Metrics exist from the start, and are updated.
func TestMetricsFromStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = refuse("a/1")
		p := start(t, sink, publisher.Config{Registerer: registry})
		for name, want := range map[string]int{
			"published_total": 1, "retries_total": 2, "dead_letters_total": 4, "queued_items": 1, "queued_bytes": 1,
			"oldest_seconds": 1, "publish_seconds": 1, "batch_messages": 1, "connected": 1,
		} {
			if got, _ := series(t, registry, name); got != want {
				t.Errorf("%s has %d series at the start, want %d", name, got, want)
			}
		}
		p.add(r.items("a/1", "a/2"))
		p.drain()
		for name, want := range map[string]float64{"published_total": 1, "dead_letters_total": 1, "publish_seconds": 2, "batch_messages": 2, "queued_items": 0, "connected": 1} {
			if _, got := series(t, registry, name); got != want {
				t.Errorf("%s = %v, want %v", name, got, want)
			}
		}
	})
}

// series is how many series a metric has, and the sum of their values: of a histogram the number of
// samples.
func series(t *testing.T, registry *prometheus.Registry, name string) (count int, sum float64) {
	t.Helper()
	for series, value := range testkit.Metrics(t, registry) {
		series, _, _ = strings.Cut(series, " ")
		if strings.TrimSuffix(series, "_count") == "bridge_publisher_"+name {
			count++
			sum += value
		}
	}
	return count, sum
}
