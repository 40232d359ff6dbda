package metric

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Values are kept by second, by ten seconds and by minute, and null where nothing was sampled.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		f := With(registry)
		sent := f.Counters("sent_total", "Sent.", "sink")
		lag := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lag"}, []string{"resource", "sink"})
		registry.MustRegister(lag)
		s := NewSamples(registry, Sampled{Name: "sent_total", By: "sink"}, Sampled{Name: "lag", By: "sink", Max: true})
		for second := range 120 {
			sent.With("a").Add(2)
			lag.WithLabelValues("pods", "a").Set(0)
			lag.WithLabelValues("jobs", "a").Set(float64(second % 10))
			s.take(time.Now())
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Second) // the bridge is held
		s.take(time.Now())

		report := func(window time.Duration) map[string][]Sample {
			list := map[string][]Sample{}
			for _, one := range s.Report(window).Series {
				list[one.Name+one.Labels["sink"]] = one.Values
			}
			return list
		}
		seconds := report(5 * time.Minute)
		if n := len(seconds["laga"]); n != 300 {
			t.Errorf("%d seconds", n)
		}
		text, err := json.Marshal(seconds["sent_totala"][265:])
		if err != nil {
			t.Fatal(err)
		}
		if want := "[234,236,238,240," + strings.Repeat("null,", 30) + "240]"; string(text) != want {
			t.Errorf("seconds: %s", text)
		}
		if got := report(15 * time.Minute)["laga"]; len(got) != 90 || got[len(got)-5] != 9 {
			t.Errorf("the highest lag of ten seconds: %v", got)
		}
		if got := s.Report(24 * time.Hour); got.Step != 60 || len(got.Series[0].Values) != 1440 {
			t.Errorf("a day: %d values of %d s", len(got.Series[0].Values), got.Step)
		}
	})
}

// slowGatherer takes 10 ms, as the metrics of some resources do, or longer.
type slowGatherer struct{ times, took atomic.Int64 }

func (g *slowGatherer) Gather() ([]*dto.MetricFamily, error) {
	g.times.Add(1)
	time.Sleep(max(10*time.Millisecond, time.Duration(g.took.Load())))
	return nil, nil
}

// Sampling takes a bounded share of a processor, a smaller one while no samples are asked for.
func TestSamplesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &slowGatherer{}
		s := NewSamples(from)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(10 * time.Minute)
		if n := from.times.Load(); n < 55 || n > 65 { // every 10 s
			t.Errorf("%d samples in 10 minutes that are not asked for", n)
		}
		before := from.times.Load()
		s.Report(time.Minute)
		time.Sleep(time.Minute - 10*time.Second)
		if n := from.times.Load() - before; n < 45 || n > 55 { // every second, from the report on
			t.Errorf("%d samples within a minute after a report", n)
		}
		from.took.Store(int64(time.Second))
		time.Sleep(10 * time.Minute)
		before = from.times.Load()
		time.Sleep(10 * time.Minute)
		if n := from.times.Load() - before; n < 9 { // every minute at least
			t.Errorf("%d samples in 10 minutes of a busy machine", n)
		}
		before = from.times.Load()
		s.Report(time.Minute)
		time.Sleep(2 * time.Second)
		if from.times.Load() == before {
			t.Error("a report does not end a pause")
		}
	})
}

// The memory of samples has a bound, however many sinks there are.
func TestSamplesMemory(t *testing.T) {
	registry := prometheus.NewRegistry()
	sent := With(registry).Counters("sent_total", "Sent.", "sink")
	for i := range 10 * maxSeries {
		sent.With(fmt.Sprint(i)).Inc()
	}
	s := NewSamples(registry, Sampled{Name: "sent_total", By: "sink"})
	s.take(time.Now())
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	with := used()
	if n := len(s.Report(time.Minute).Series); n != maxSeries {
		t.Errorf("%d series", n)
	}
	s.series = nil
	if took := with - used(); took < 1_600_000 || took > 2_000_000 {
		t.Errorf("%d series take %d bytes", maxSeries, took)
	}
}
