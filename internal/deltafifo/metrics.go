package deltafifo

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

// metrics of one FIFO. Every method is called with the FIFO's lock held and does not block.
type metrics struct {
	deltas [typesEnd]*metric.Counter // by DeltaType
	bytes  *metric.Gauge
}

func newMetrics(reg prometheus.Registerer, maxBytes int) *metrics {
	f := metric.With(reg)
	deltas := f.Counters("bridge_deltafifo_deltas_total", "Deltas queued, by type.", "type")
	m := &metrics{
		bytes: f.Gauge("bridge_deltafifo_queued_bytes", "Bytes of objects that wait for the "+
			"controller."),
	}
	f.Gauge("bridge_deltafifo_capacity_bytes",
		"Bytes that may wait for the controller before the reflector "+
			"blocks.").Set(float64(maxBytes))
	for t := Added; t < typesEnd; t++ {
		m.deltas[t] = deltas.With(t.String())
	}
	return m
}

func (m *metrics) added(t DeltaType, bytes int) {
	m.deltas[t].Inc()
	m.bytes.Set(float64(bytes))
}

func (m *metrics) popped(bytes int) { m.bytes.Set(float64(bytes)) }

// registerDeltas shows how many deltas wait.
func registerDeltas(reg prometheus.Registerer, queued func() int) {
	metric.With(reg).GaugeFunc("bridge_deltafifo_queued_deltas",
		"Deltas that the controller has not processed yet.",
		func() float64 { return float64(queued()) })
}
