package store

import (
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
)

// budget bounds what the bodies of updated objects cost: some 30 µs of CPU each, 15 times what a
// version costs (docs/decisions/0002-one-database.md).
type budget struct {
	limiter atomic.Pointer[rate.Limiter] // nil for no bound
	left    *metric.Counter              // updates that left a body as it was
	n       atomic.Int64                 // of them
}

func newBudget(reg prometheus.Registerer) *budget {
	return &budget{left: metric.With(reg).Counter("bridge_store_bodies_left_total",
		"Updates that left the object's body on disk as it was, because more than "+
			"state.bodiesPerSecond came.")}
}

// set bounds bodies from now on; 0 for no bound.
func (b *budget) set(perSecond int) {
	if perSecond == 0 {
		b.limiter.Store(nil)
		return
	}
	b.limiter.Store(rate.NewLimiter(rate.Limit(perSecond), 2*perSecond))
}

// SetBodiesPerSecond bounds how many bodies of updated objects are written a second; up to twice as
// many come at once. An update beyond that leaves the body as it was, unless the Indexer asks for
// exact ones. 0, as after Open: no bound, each body is written with its version. It may be called
// at any time.
func (db *DB) SetBodiesPerSecond(n int) { db.budget.set(n) }

// BodiesLeft counts the updates since the start that left a body as it was.
func (db *DB) BodiesLeft() int64 { return db.budget.n.Load() }

// leavesBody reports whether a state is committed without its body, so that an earlier version's
// stays. It is false for the first state of an object, and when no state of it was committed since
// the start: the first update after a restart writes the body, if not an earlier one.
func (b *Batch) leavesBody(ix *Indexer, key resource.Key, k *cacheLookup, s *Settled) bool {
	budget := b.db.budget
	limiter := budget.limiter.Load()
	if limiter == nil || ix.cfg.ExactBodies || limiter.Allow() {
		return false
	}
	if k.find(ix, key); !k.isUID(s.UID) {
		return false
	}
	budget.left.Inc()
	budget.n.Add(1)
	return true
}
