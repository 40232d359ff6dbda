package testkit

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the values of all series of a registry. A series is named by its metric and the
// values of its labels: "events_total added". A histogram gives two: "seconds_count" and
// "seconds_sum".
func Metrics(t testing.TB, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	OK(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var b strings.Builder
			for _, l := range m.GetLabel() {
				b.WriteString(" " + l.GetValue())
			}
			labels := b.String()
			if h := m.GetHistogram(); h != nil {
				all[family.GetName()+"_count"+labels] = float64(h.GetSampleCount())
				all[family.GetName()+"_sum"+labels] = h.GetSampleSum()
				continue
			}
			all[family.GetName()+labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

// Metric is the value of one series, which is named as in Metrics. The labels may be left out where
// there is one series. It ends the test when there is none.
func Metric(t testing.TB, from prometheus.Gatherer, series string) float64 {
	t.Helper()
	all := Metrics(t, from)
	value, found := all[series]
	for name, v := range all {
		if strings.HasPrefix(name, series+" ") {
			if found {
				t.Fatalf("there is more than one %s", series)
			}
			value, found = v, true
		}
	}
	if !found {
		t.Fatalf("there is no metric %s", series)
	}
	return value
}
