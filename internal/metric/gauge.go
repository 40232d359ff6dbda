package metric

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

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
