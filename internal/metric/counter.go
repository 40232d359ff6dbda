package metric

import (
	"math"
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
	of    *Counters
	value string        // of the label
	bits  atomic.Uint64 // of a float64
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

// Desc implements prometheus.Metric.
func (c *Counter) Desc() *prometheus.Desc { return c.of.desc }

// Write implements prometheus.Metric.
func (c *Counter) Write(m *dto.Metric) error {
	count := c.count()
	m.Counter = &dto.Counter{Value: &count}
	if c.of.label != "" {
		m.Label = []*dto.LabelPair{{Name: &c.of.label, Value: &c.value}}
	}
	return nil
}

// Counters are counters by the values of one label. Their methods may be called concurrently.
type Counters struct {
	desc  *prometheus.Desc
	label string
	known []Counter

	mu    sync.Mutex // guards later
	later map[string]*Counter
}

func newCounters(name, help, label string, values ...string) *Counters {
	c := &Counters{desc: describe(name, help, label), label: label, known: make([]Counter, len(values))}
	for n, value := range values {
		c.known[n].of, c.known[n].value = c, value
	}
	return c
}

// With is the counter of a value. One that was not known from the start is made.
func (c *Counters) With(value string) *Counter {
	for n := range c.known {
		if c.known[n].value == value {
			return &c.known[n]
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later[value] == nil {
		if c.later == nil {
			c.later = map[string]*Counter{}
		}
		c.later[value] = &Counter{of: c, value: value}
	}
	return c.later[value]
}

// Counts are what was counted so far, by value. Those that are zero are left out.
func (c *Counters) Counts() map[string]int {
	counts := map[string]int{}
	for _, counter := range c.all() {
		if n := int(counter.count()); n > 0 {
			counts[counter.value] = n
		}
	}
	return counts
}

func (c *Counters) all() []*Counter {
	all := make([]*Counter, 0, len(c.known))
	for n := range c.known {
		all = append(all, &c.known[n])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, counter := range c.later {
		all = append(all, counter)
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *Counters) Collect(to chan<- prometheus.Metric) {
	for _, counter := range c.all() {
		to <- counter
	}
}
