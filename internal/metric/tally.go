package metric

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Tally counts by the values of one label, for the metrics and for who reads the counts in the
// program: counters can't be read back. Its methods may be called concurrently.
type Tally struct {
	counters *prometheus.CounterVec

	mu     sync.Mutex // guards counts
	counts map[string]int
}

// Tally makes counters as Counters does.
func (f Factory) Tally(name, help, label string, values ...string) *Tally {
	return &Tally{counters: f.Counters(name, help, label, values...), counts: map[string]int{}}
}

// Inc counts one.
func (t *Tally) Inc(value string) {
	t.counters.WithLabelValues(value).Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[value]++
}

// Counts are what was counted so far, by value. Those that are zero are left out.
func (t *Tally) Counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
