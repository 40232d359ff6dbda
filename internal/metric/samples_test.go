package metric

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
