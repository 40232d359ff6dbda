package deltafifo

import "github.com/prometheus/client_golang/prometheus"

// metrics of one FIFO. Every method is called with the FIFO's lock held and does not block.
type metrics struct {
	deltas [typesEnd]prometheus.Counter // by DeltaType
	bytes  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, maxBytes int) *metrics {
	deltas := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bridge_deltafifo_deltas_total", Help: "Deltas queued, by type.",
	}, []string{"type"})
	m := &metrics{
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_deltafifo_queued_bytes", Help: "Bytes of objects that wait for the controller.",
		}),
	}
	capacity := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "bridge_deltafifo_capacity_bytes",
		Help: "Bytes that may wait for the controller before the reflector blocks.",
	})
	capacity.Set(float64(maxBytes))
	for t := Added; t < typesEnd; t++ {
		m.deltas[t] = deltas.WithLabelValues(t.String())
	}
	if reg != nil {
		reg.MustRegister(deltas, m.bytes, capacity)
	}
	return m
}

func (m *metrics) added(t DeltaType, bytes int) {
	m.deltas[t].Inc()
	m.bytes.Set(float64(bytes))
}

func (m *metrics) popped(bytes int) { m.bytes.Set(float64(bytes)) }

// registerDeltas shows how many deltas wait.
func (f *FIFO) registerDeltas(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "bridge_deltafifo_queued_deltas", Help: "Deltas that the controller has not processed yet.",
	}, func() float64 { return float64(f.Stats().Deltas) }))
}
