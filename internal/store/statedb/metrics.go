package statedb

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/store/disk"
)

type metrics struct {
	unavailableNow *prometheus.GaugeVec
}

// Reasons why a disk takes no writes, as labels.
const (
	reasonFull     = "full"
	reasonReadOnly = "read-only"
)

func newMetrics(reg prometheus.Registerer, free func() (free, total uint64, ok bool)) *metrics {
	f := metric.With(reg)
	f.GaugeFunc("bridge_store_free_bytes",
		"Space left for the state directory; NaN when the file system does not report it.",
		func() float64 {
			if left, _, ok := free(); ok {
				return float64(left)
			}
			return math.NaN()
		})
	return &metrics{unavailableNow: f.Gauges("bridge_store_unavailable",
		"1 while commits wait because the state directory takes no writes, by reason.",
		"reason", reasonFull, reasonReadOnly)}
}

func (m *metrics) unavailable(why error) {
	m.unavailableNow.WithLabelValues(reasonFull).Set(metric.Flag(disk.Full(why)))
	m.unavailableNow.WithLabelValues(reasonReadOnly).Set(metric.Flag(disk.ReadOnly(why)))
}

// registerUsed shows what the database takes.
func (db *DB) registerUsed(reg prometheus.Registerer) {
	metric.With(reg).GaugeFunc("bridge_store_used_bytes",
		"Bytes that the state database takes: settled states, and spooled changes.",
		func() float64 { return float64(db.DiskBytes()) })
}
