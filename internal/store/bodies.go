package store

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kubebridge/bridge/internal/resource"
)

// budget bounds what the bodies of updated objects cost: some 30 µs of CPU each, 15 times what a version costs (docs/decisions/0014-bodies-within-a-budget.md).
type budget struct {
	limiter *rate.Limiter
	left    prometheus.Counter // updates that left a body as it was
	n       atomic.Int64       // of them
}

func newBudget(o Options) *budget {
	b := &budget{left: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "bridge_store_bodies_left_total", Help: "Updates that left the object's body on disk as it was, because more than state.bodiesPerSecond came.",
	})}
	if o.Registerer != nil {
		o.Registerer.MustRegister(b.left)
	}
	if o.BodiesPerSecond > 0 {
		b.limiter = rate.NewLimiter(rate.Limit(o.BodiesPerSecond), 2*o.BodiesPerSecond)
	}
	return b
}

// BodiesLeft counts the updates since the start that left a body as it was.
func (db *DB) BodiesLeft() int64 { return db.budget.n.Load() }

// leavesBody says whether a state is committed without its body, and that of an earlier version stays. It never does for an object
// whose first state this is, or of which no state was committed since the start: so what is left behind is made up for by the first
// update after a restart, if not by an earlier one.
func (b *Batch) leavesBody(ix *Indexer, key resource.Key, s *Settled) bool {
	budget := b.db.budget
	if budget.limiter == nil || ix.cfg.ExactBodies || budget.limiter.Allow() || !ix.knows(key, s.UID) {
		return false
	}
	budget.left.Inc()
	budget.n.Add(1)
	return true
}
