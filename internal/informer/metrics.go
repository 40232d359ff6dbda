package informer

import (
	"math"

	"github.com/kubebridge/bridge/internal/metric"
)

func (p *Informer) registerMetrics() {
	m := metric.With(p.metrics)
	m.GaugeFunc("bridge_checkpoint_versions_behind",
		"How far the committed watermark is behind the version last read; 0 where versions have no "+
			"order. The API server counts versions over all its resources.",
		func() float64 {
			n, _ := behind(p.reflector.Status().Version, p.stages.Log().Status().Watermark)
			return float64(n)
		})
	m.FlagFunc("bridge_informer_synced",
		"1 while everything that the API server has is read and in flight to the sinks, 0 until "+
			"then and from a gap on.",
		func() bool {
			r := p.reflector.Status()
			return p.synced(&r)
		})
	m.GaugeFunc("bridge_informer_objects",
		"Objects that exist, as of the last commit. Counted at a scrape, if counting takes less than a "+
			"hundredth of the time since the last; NaN when they can't be.",
		func() float64 {
			if n := p.Objects.Count(); n != nil {
				return float64(*n)
			}
			return math.NaN()
		})
	p.refresh.objects = m.Counter("bridge_catchup_objects_total",
		"Objects on disk that were brought up to date, of those that a flood of updates had left behind.")
	p.refresh.requests = m.Counters("bridge_catchup_requests_total",
		"Requests to the API server for objects that a flood of updates had left behind "+
			"on disk, by outcome.",
		"outcome", "ok", "failed")
	m.GaugeFunc("bridge_catchup_behind_objects",
		"Objects of which the state directory has an earlier version than was sent, since a flood of "+
			"updates left it there.",
		func() float64 { return float64(p.indexer.StaleBodies().Count()) })
}
