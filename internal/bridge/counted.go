package bridge

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

// counted is a number of objects that is counted only when somebody wants to know, and then not often: it takes going through all of
// them.
type counted struct {
	mu   sync.Mutex // guards busy, n, known and due
	busy bool
	n    int
	// known: n was counted.
	known bool
	due   time.Time
}

// Counting takes at most a hundredth of the time, and is repeated at most each countEvery.
const (
	countEvery = time.Second
	countShare = 100
)

// count is the number as it was last counted, by this call when that is due; nil when there is none yet.
func (c *counted) count(objects func() (int, error)) *int {
	if c.begin() {
		began := time.Now()
		n, err := objects()
		c.end(n, err, time.Since(began))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return nil
	}
	return new(c.n)
}

// begin says whether the caller is to count.
func (c *counted) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || time.Now().Before(c.due) {
		return false
	}
	c.busy = true
	return true
}

func (c *counted) end(n int, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	c.due = time.Now().Add(max(countEvery, countShare*took))
	if err == nil {
		c.n, c.known = n, true
	}
}

// registerObjects shows how many objects the unit knows.
func (u *unit) registerObjects(reg prometheus.Registerer) {
	metric.With(reg).GaugeFunc("bridge_informer_objects",
		"Objects that exist, as of the last commit. Counted at a scrape, if counting takes less than a hundredth of the time since the last; NaN when they can't be.",
		func() float64 {
			if n := u.objects.count(u.indexer.Objects); n != nil {
				return float64(*n)
			}
			return math.NaN()
		})
}
