package metric

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Samples keeps the last day of some metrics in memory, so that a trend can be seen without a
// Prometheus. Its memory has a bound: maxSeries series of 2,100 values. Its methods may be called
// concurrently; Run once.
type Samples struct {
	from    prometheus.Gatherer
	metrics map[string]Sampled

	mu     sync.Mutex
	rings  [3]sampleRing   // guarded by mu
	series []*sampleSeries // guarded by mu
	asked  time.Time       // guarded by mu: for a report, the last time

	wake chan struct{} // has an element after the first report in a while
}

// Sampled says how a metric is sampled: its series are combined by one of its labels.
type Sampled struct {
	Name string
	// By is the label that is kept; "" for one series in total.
	By string
	// Max takes the highest value of the series and of the time, as of a lag. The default is the
	// sum of the series, and the last one of the time.
	Max bool
}

// sampleRing is how often and how long values are kept. A slot is a time divided by the step.
type sampleRing struct {
	step, slots int64
	last        int64 // the newest slot; 0 for none
}

type sampleSeries struct {
	name, label string
	values      [3][]float64 // by ring; NaN where nothing was sampled
}

// maxSeries takes 1.9 MB: a bridge with 16 sinks has 90 of those that the page shows.
const maxSeries = 100

// maxShare and idleShare are how much of one processor sampling takes at most, while samples are
// asked for and otherwise: with many resources the pause between two samples grows.
const (
	maxShare  = 0.01
	idleShare = 0.001
)

// maxPause is the coarsest step: on a busy machine a sample takes long, and uses little.
const maxPause = time.Minute

// NewSamples returns samples of some metrics. Run fills them.
func NewSamples(from prometheus.Gatherer, metrics ...Sampled) *Samples {
	s := &Samples{
		from: from, metrics: map[string]Sampled{}, wake: make(chan struct{}, 1),
		rings: [3]sampleRing{{step: 1, slots: 300}, {step: 10, slots: 360}, {step: 60, slots: 1440}},
	}
	for _, m := range metrics {
		s.metrics[m.Name] = m
	}
	return s
}

// Run samples until ctx ends.
func (s *Samples) Run(ctx context.Context) {
	for {
		began := time.Now()
		s.take(began)
		pause := time.Duration(float64(time.Since(began)) / s.share())
		select {
		case <-time.After(min(max(pause, time.Until(began.Add(time.Second))), maxPause)):
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Samples) share() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) < time.Minute {
		return maxShare
	}
	return idleShare
}

// take samples once. A collector that fails leaves out its metrics.
func (s *Samples) take(now time.Time) {
	families, _ := s.from.Gather()
	values := map[[2]string]float64{}
	for _, f := range families {
		m, isSampled := s.metrics[f.GetName()]
		if !isSampled {
			continue
		}
		for _, one := range f.GetMetric() {
			key := [2]string{m.Name, labelOf(one, m.By)}
			if v := valueOf(one); m.Max {
				values[key] = max(values[key], v)
			} else {
				values[key] += v
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rings {
		s.advanceLocked(i, now.Unix()/s.rings[i].step)
	}
	for key, v := range values {
		s.setLocked(key, v)
	}
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func valueOf(m *dto.Metric) float64 {
	if c := m.GetCounter(); c != nil {
		return c.GetValue()
	}
	return m.GetGauge().GetValue()
}

// advanceLocked makes a slot the newest one of a ring, and clears those that were skipped.
func (s *Samples) advanceLocked(ring int, slot int64) {
	r := &s.rings[ring]
	if slot <= r.last { // also of a clock that was set back
		return
	}
	for at := max(r.last+1, slot-r.slots+1); at <= slot; at++ {
		for _, one := range s.series {
			one.values[ring][at%r.slots] = math.NaN()
		}
	}
	r.last = slot
}

func (s *Samples) setLocked(key [2]string, v float64) {
	name, label := key[0], key[1]
	i := slices.IndexFunc(s.series, func(one *sampleSeries) bool {
		return one.name == name && one.label == label
	})
	if i < 0 {
		if len(s.series) == maxSeries {
			return
		}
		s.series, i = append(s.series, s.newSeries(name, label)), len(s.series)
	}
	for ring := range s.rings {
		r := &s.rings[ring]
		at := &s.series[i].values[ring][r.last%r.slots]
		if s.metrics[name].Max && *at > v {
			continue
		}
		*at = v
	}
}

func (s *Samples) newSeries(name, label string) *sampleSeries {
	one := &sampleSeries{name: name, label: label}
	for ring := range s.rings {
		one.values[ring] = slices.Repeat([]float64{math.NaN()}, int(s.rings[ring].slots))
	}
	return one
}

// SampleReport is the samples of a time. Value i is of Since + i*Step.
type SampleReport struct {
	Since time.Time `json:"since"`
	// Step is in seconds.
	Step   int64          `json:"step"`
	Series []SeriesReport `json:"series"`
}

// SeriesReport is one series. Values are null where the bridge did not run.
type SeriesReport struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Values []Sample          `json:"values"`
}

// Sample is a number; NaN is null as JSON.
type Sample float64

// MarshalJSON implements json.Marshaler.
func (v Sample) MarshalJSON() ([]byte, error) {
	if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
	}
	return []byte("null"), nil
}

// Report returns the samples of the last window, in the finest step that has kept them.
func (s *Samples) Report(window time.Duration) SampleReport {
	if s.isFirst() {
		select {
		case s.wake <- struct{}{}:
		default: // it is awake
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ring := len(s.rings) - 1
	for i := range s.rings {
		if window <= time.Duration(s.rings[i].step*s.rings[i].slots)*time.Second {
			ring = i
			break
		}
	}
	r := s.rings[ring]
	n := min(max(int64(window/time.Second)/r.step, 1), r.slots)
	first := r.last - n + 1
	report := SampleReport{
		Since: time.Unix(first*r.step, 0).UTC(), Step: r.step, Series: []SeriesReport{},
	}
	for _, one := range s.series {
		list := SeriesReport{Name: one.name, Values: make([]Sample, n)}
		if by := s.metrics[one.name].By; by != "" {
			list.Labels = map[string]string{by: one.label}
		}
		for i := range n {
			if list.Values[i] = Sample(math.NaN()); first+i > 0 {
				list.Values[i] = Sample(one.values[ring][(first+i)%r.slots])
			}
		}
		report.Series = append(report.Series, list)
	}
	slices.SortFunc(report.Series, func(a, b SeriesReport) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(valuesOf(a), valuesOf(b)))
	})
	return report
}

// isFirst reports whether a report is the first one in a while.
func (s *Samples) isFirst() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.asked
	s.asked = time.Now()
	return time.Since(before) > time.Minute
}

func valuesOf(r SeriesReport) (labels []string) {
	for _, v := range r.Labels {
		labels = append(labels, v)
	}
	return labels
}
