// Package metric makes Prometheus metrics in one style: each is registered where it is made, and
// every value of a label exists from the start, at zero. A rate of a counter that begins with the
// first failure would miss that failure.
//
// Names are written in full where a metric is made, so that a search for a name of an alert finds
// the code. docs/metrics.md is made of them; what to do about each is in docs/operations.md.
package metric

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
)

// Factory makes metrics and registers them.
type Factory struct {
	auto promauto.Factory
	reg  prometheus.Registerer
}

// With returns a factory for a Registerer. With a nil one the metrics count, and are not read.
// Two metrics of the same name and labels are a mistake in the program, and panic.
func With(reg prometheus.Registerer) Factory { return Factory{promauto.With(reg), reg} }

// WithLabel returns a factory whose metrics all have a label.
func WithLabel(reg prometheus.Registerer, name, value string) Factory {
	return With(prometheus.WrapRegistererWith(prometheus.Labels{name: value}, reg))
}

func (f Factory) register(c prometheus.Collector) {
	if f.reg != nil {
		f.reg.MustRegister(c)
	}
}

// form is what metrics of one name have in common. There are hundreds of them, one for each
// resource, and they differ in the labels of their Scope only.
type form struct {
	desc   *prometheus.Desc
	label  string   // "" for none
	values []string // of the label, from the start
}

// forms are shared: *form by words.
var forms sync.Map

type words struct{ name, help, label, values string }

// formOf returns the form of metrics with a label, "" for none.
func formOf(name, help, label string, values []string) *form {
	key := words{name, help, label, strings.Join(values, "\x00")}
	if f, ok := forms.Load(key); ok {
		return f.(*form)
	}
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	desc := prometheus.NewDesc(name, help, labels, nil)
	f, _ := forms.LoadOrStore(key, &form{desc, label, slices.Clone(values)})
	return f.(*form)
}

// describe returns a descriptor of metrics without a label of their own.
func describe(name, help string) *prometheus.Desc { return formOf(name, help, "", nil).desc }

// Counter makes a counter.
func (f Factory) Counter(name, help string) *Counter {
	return f.Counters(name, help, "", "").With("")
}

// Counters makes a counter for each of the values of a label. The label may get other values
// later, which then begin with their first count.
func (f Factory) Counters(name, help, label string, values ...string) *Counters {
	c := newCounters(name, help, label, values...)
	f.register(c)
	return c
}

// CountersOf makes counters by several labels, none yet.
func (f Factory) CountersOf(name, help string, labels ...string) *prometheus.CounterVec {
	return f.auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge makes a gauge.
func (f Factory) Gauge(name, help string) *Gauge {
	g := &Gauge{desc: describe(name, help)}
	f.register(g)
	return g
}

// Gauges makes a gauge for each of the values of a label.
func (f Factory) Gauges(name, help, label string, values ...string) *prometheus.GaugeVec {
	v := f.auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

// GaugeFunc makes a gauge that is read from the program at each scrape. value may be called
// concurrently.
func (f Factory) GaugeFunc(name, help string, value func() float64) {
	f.register(&gaugeFunc{describe(name, help), value})
}

// FlagFunc makes a gauge that is 1 while on is true, else 0. on may be called concurrently.
func (f Factory) FlagFunc(name, help string, on func() bool) {
	f.GaugeFunc(name, help, func() float64 { return Flag(on()) })
}

// Flag returns the value of a gauge for true and false: 1 and 0.
func Flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// Histogram makes a histogram with these upper bounds of its buckets.
func (f Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return f.auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

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

// With returns the counter of a value. One that was not known from the start is made.
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

// Counts returns what was counted so far, by value. Those that are zero are left out.
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

// Gauge has a value that is set. Its methods may be called concurrently. It is not the library's
// for the same reason as Counter.
type Gauge struct {
	desc *prometheus.Desc
	bits atomic.Uint64 // of a float64
}

// Set sets the value.
func (g *Gauge) Set(value float64) { g.bits.Store(math.Float64bits(value)) }

// Add adds to the value.
func (g *Gauge) Add(n float64) { add(&g.bits, n) }

// Desc implements prometheus.Metric.
func (g *Gauge) Desc() *prometheus.Desc { return g.desc }

// Write implements prometheus.Metric.
func (g *Gauge) Write(m *dto.Metric) error {
	m.Gauge = &dto.Gauge{Value: new(math.Float64frombits(g.bits.Load()))}
	return nil
}

// Describe implements prometheus.Collector.
func (g *Gauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect implements prometheus.Collector.
func (g *Gauge) Collect(to chan<- prometheus.Metric) { to <- g }

// gaugeFunc is a gauge that is read from the program.
type gaugeFunc struct {
	desc  *prometheus.Desc
	value func() float64
}

// Desc implements prometheus.Metric.
func (g *gaugeFunc) Desc() *prometheus.Desc { return g.desc }

// Write implements prometheus.Metric.
func (g *gaugeFunc) Write(m *dto.Metric) error {
	m.Gauge = &dto.Gauge{Value: new(g.value())}
	return nil
}

// Describe implements prometheus.Collector.
func (g *gaugeFunc) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect implements prometheus.Collector.
func (g *gaugeFunc) Collect(to chan<- prometheus.Metric) { to <- g }

// Scope is a Registerer that remembers what is registered through it, so that an informer or a sink
// that stops takes its metrics with it: one that starts again under the same name registers the
// same. What is registered before Begin is held back until then: a sink can be made while the one
// that it replaces still runs. Its methods may be called concurrently. A nil Scope begins and ends,
// and has nothing.
//
// What was held back is registered as one collector. A collector of its own for each metric, with
// the labels of the Scope in its descriptor, took 18 KB for each resource.
type Scope struct {
	to    prometheus.Registerer
	mu    sync.Mutex // guards all below
	begun bool
	held  group
	later []prometheus.Collector // registered since Begin
}

// group is several collectors as one.
type group []prometheus.Collector

// Describe implements prometheus.Collector.
func (g *group) Describe(to chan<- *prometheus.Desc) {
	for _, c := range *g {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (g *group) Collect(to chan<- prometheus.Metric) {
	for _, c := range *g {
		c.Collect(to)
	}
}

// NewScope makes a Scope that has not begun, whose metrics have these labels. With a nil Registerer
// the metrics count, and are not read.
func NewScope(to prometheus.Registerer, labels prometheus.Labels) *Scope {
	return &Scope{to: prometheus.WrapRegistererWith(labels, to)}
}

// Register registers and remembers.
func (s *Scope) Register(c prometheus.Collector) error {
	s.mu.Lock()
	begun := s.begun
	if !begun {
		s.held = append(s.held, c)
	}
	s.mu.Unlock()
	if !begun {
		return nil
	}
	if err := s.to.Register(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, c)
	return nil
}

// MustRegister registers and remembers; it panics where Register fails.
func (s *Scope) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister unregisters what was registered since Begin. End forgets what was remembered.
func (s *Scope) Unregister(c prometheus.Collector) bool { return s.to.Unregister(c) }

// Begin registers what was held back.
func (s *Scope) Begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.begun = true
	empty := len(s.held) == 0
	s.mu.Unlock()
	if !empty { // the registry would not check a collector that describes nothing
		s.to.MustRegister(&s.held)
	}
}

// End unregisters everything.
func (s *Scope) End() {
	if s == nil {
		return
	}
	s.mu.Lock()
	later, registered := s.later, s.begun && len(s.held) > 0
	s.later, s.begun = nil, false
	s.mu.Unlock()
	for _, c := range later {
		s.to.Unregister(c)
	}
	if registered {
		s.to.Unregister(&s.held)
	}
}
