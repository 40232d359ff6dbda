package store

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/disk"
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
	m := &metrics{unavailableNow: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "bridge_store_unavailable", Help: "1 while commits wait because the state directory takes no writes, by reason.",
	}, []string{"reason"})}
	m.unavailable(nil)
	if reg != nil {
		reg.MustRegister(m.unavailableNow, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "bridge_store_free_bytes", Help: "Space left for the state directory; NaN when the file system does not tell.",
		}, func() float64 {
			if left, _, ok := free(); ok {
				return float64(left)
			}
			return math.NaN()
		}))
	}
	return m
}

func (m *metrics) unavailable(why error) {
	m.unavailableNow.WithLabelValues(reasonFull).Set(flag(disk.Full(why)))
	m.unavailableNow.WithLabelValues(reasonReadOnly).Set(flag(disk.ReadOnly(why)))
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// registerUsed shows what the database takes.
func (db *DB) registerUsed(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "bridge_store_used_bytes", Help: "Bytes that the state database takes: settled states, and what waits for sinks.",
	}, func() float64 { return float64(db.DiskBytes()) }))
}
