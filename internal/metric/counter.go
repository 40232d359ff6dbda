package metric

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Counter counts up. Its methods may be called concurrently.
//
// It is not the library's because of its size: every resource has some sixty counters, and with "*"
// there are hundreds of resources.
type Counter struct {
	bits atomic.Uint64 // of a float64
}

// Inc counts one.
func (c *Counter) Inc() { c.Add(1) }

// Add counts n, which is not negative.
func (c *Counter) Add(n float64) { add(&c.bits, n) }

// add adds to a float64.
func add(bits *atomic.Uint64, n float64) {
	for {
		before := bits.Load()
		if bits.CompareAndSwap(before, math.Float64bits(math.Float64frombits(before)+n)) {
			return
		}
	}
}

func (c *Counter) count() float64 { return math.Float64frombits(c.bits.Load()) }

// sample is a counter as it is read.
type sample struct {
	of    *Counters
	value string // of the label
	*Counter
}

// Desc implements prometheus.Metric.
func (s sample) Desc() *prometheus.Desc { return s.of.form.desc }

// Write implements prometheus.Metric.
func (s sample) Write(m *dto.Metric) error {
	m.Counter = &dto.Counter{Value: new(s.count())}
	if label := s.of.form.label; label != "" {
		m.Label = []*dto.LabelPair{{Name: &label, Value: &s.value}}
	}
	return nil
}

// Counters are counters by the values of one label. Their methods may be called concurrently.
type Counters struct {
	form  *form
	known []Counter // by the form's values

	mu    sync.Mutex // guards later
	later map[string]*Counter
}

func newCounters(name, help, label string, values ...string) *Counters {
	f := formOf(name, help, label, values)
	return &Counters{form: f, known: make([]Counter, len(f.values))}
}

// With is the counter of a value. One that was not known from the start is made.
func (c *Counters) With(value string) *Counter {
	if n := slices.Index(c.form.values, value); n >= 0 {
		return &c.known[n]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later[value] == nil {
		if c.later == nil {
			c.later = map[string]*Counter{}
		}
		c.later[value] = new(Counter)
	}
	return c.later[value]
}

// Counts are what was counted so far, by value. Those that are zero are left out.
func (c *Counters) Counts() map[string]int {
	counts := map[string]int{}
	for _, s := range c.all() {
		if n := int(s.count()); n > 0 {
			counts[s.value] = n
		}
	}
	return counts
}

func (c *Counters) all() []sample {
	all := make([]sample, 0, len(c.known))
	for n, value := range c.form.values {
		all = append(all, sample{c, value, &c.known[n]})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for value, counter := range c.later {
		all = append(all, sample{c, value, counter})
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(to chan<- *prometheus.Desc) { to <- c.form.desc }

// Collect implements prometheus.Collector.
func (c *Counters) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.all() {
		to <- s
	}
}
