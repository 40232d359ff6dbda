package app

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/settings"
)

// Results of reading the configuration again.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged" // nothing of what is watched or sent has changed
	reloadRefused   = "refused"   // it has a mistake, or changes what only a restart can
	reloadFailed    = "failed"    // the API server could not be asked, for one
)

// ReloadStatus is how the last attempt to read the configuration again went.
type ReloadStatus struct {
	Time   time.Time `json:"time"`
	Why    string    `json:"why"`
	Result string    `json:"result"`
	// Changes that were made.
	Changes string `json:"changes,omitempty"`
	// Problems for which it was refused, each with its place in the file.
	Problems []string `json:"problems,omitempty"`
}

// outcome keeps how reloads went. Its methods may be called concurrently.
type outcome struct {
	count   *metric.Counters
	current *metric.Gauge

	mu   sync.Mutex
	last *ReloadStatus // guarded by mu; replaced and never changed; nil before the first
}

func newOutcome(registry prometheus.Registerer) *outcome {
	m := metric.With(registry)
	o := &outcome{
		count: m.Counters("bridge_config_reloads_total",
			"Times that the configuration was read again while the bridge ran, by result.",
			"result", reloadApplied, reloadUnchanged, reloadRefused, reloadFailed),
		current: m.Gauge("bridge_config_current",
			"1 while the configuration that runs is the one that was last read; 0 while that was "+
				"refused."),
	}
	o.current.Set(1)
	return o
}

// note keeps how an attempt went.
func (o *outcome) note(why string, changes bridge.Changes, err error) {
	s := &ReloadStatus{
		Time: time.Now().UTC(), Why: why, Result: reloadApplied,
		Changes: changes.String(),
	}
	switch problems := settings.Problems(err); {
	case errors.Is(err, bridge.ErrStopping):
		return
	case len(problems) > 0:
		s.Result, s.Changes = reloadRefused, ""
		for _, p := range problems {
			s.Problems = append(s.Problems, p.Error())
		}
	case err != nil:
		s.Result, s.Changes, s.Problems = reloadFailed, "", []string{err.Error()}
	case changes == (bridge.Changes{}):
		s.Result = reloadUnchanged
	}
	o.count.With(s.Result).Inc()
	o.current.Set(metric.Flag(err == nil))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = s
}

// status is the last attempt, nil when there was none.
func (o *outcome) status() *ReloadStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}
