package bridge

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
)

// behind is how far one version is before another; ok is false where they have no order.
func behind(read, watermark resource.Version) (n uint64, ok bool) {
	r, err := strconv.ParseUint(string(read), 10, 64)
	if err != nil {
		return 0, false
	}
	w, err := strconv.ParseUint(string(watermark), 10, 64)
	if err != nil {
		return 0, false
	}
	return r - min(r, w), true
}

// registerBehind shows how far the watermark is behind.
func (u *unit) registerBehind(reg prometheus.Registerer) {
	metric.With(reg).GaugeFunc("bridge_checkpoint_versions_behind",
		"How far the committed watermark is behind the version last read; 0 where versions have no order. The API server counts versions over all its resources.",
		func() float64 {
			n, _ := behind(u.reflector.Status().Version, u.informer.Log().Status().Watermark)
			return float64(n)
		})
}

// registerSynced shows whether the unit is in sync.
func (u *unit) registerSynced(reg prometheus.Registerer) {
	metric.With(reg).FlagFunc("bridge_informer_synced",
		"1 while everything that the API server has is read and on its way to the sinks, 0 until then and from a gap on.",
		func() bool {
			r := u.reflector.Status()
			return u.synced(&r)
		})
}

// age is how long ago something was; 0 for never.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}
