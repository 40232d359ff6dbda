package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// DB is what one bridge knows: the units of all informers, in one state database.
type DB struct {
	state  *statedb.DB
	pebble *pebble.DB // that of state, to read
	bodies codec
	budget *budget // of bodies
}

// Open opens the state of a bridge, or creates it; see statedb.Open.
func Open(o statedb.Options) (*DB, error) {
	o.Spans = spans
	state, err := statedb.Open(o)
	if err != nil {
		return nil, err
	}
	return newDB(state, o), nil
}

// openExisting opens what Open has made before; see statedb.OpenExisting.
func openExisting(o statedb.Options, readOnly bool) (*DB, error) {
	o.Spans = spans
	state, err := statedb.OpenExisting(o, readOnly)
	if err != nil {
		return nil, err
	}
	return newDB(state, o), nil
}

func newDB(state *statedb.DB, o statedb.Options) *DB {
	return &DB{state: state, pebble: state.Pebble(), budget: newBudget(o.Registerer)}
}

// Database is the state database itself: whose it is, how its disk is, and whether the last run
// ended in order.
func (db *DB) Database() *statedb.DB { return db.state }

// Close ends the database; see statedb.DB.Close.
func (db *DB) Close() error { return db.state.Close() }

// Batch is one atomic commit: settled objects and watermarks of any number of informers. It is used
// by one goroutine.
type Batch struct {
	db    *DB
	batch *pebble.Batch
	body  []byte // reused between bodies, as are those below
	key   []byte
	value []byte
	// values of the indexes
	values []byte
	errs   []error
}

// NewBatch begins a commit.
func (db *DB) NewBatch() *Batch {
	return &Batch{db: db, batch: db.state.NewBatch()}
}

// keyOf is objectKey in the batch's own memory: it is valid until the next.
func (b *Batch) keyOf(space byte, ix *Indexer, key resource.Key) []byte {
	b.key = append(appendPrefix(b.key[:0], space, ix.id), key...)
	return b.key
}

func (b *Batch) put(key, value []byte) { b.Fail(b.batch.Set(key, value, nil)) }

func (b *Batch) putJSON(key []byte, record any) {
	value, err := json.Marshal(record)
	b.Fail(err)
	b.put(key, value)
}

// Fail has Commit return an error, unless err is nil.
func (b *Batch) Fail(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// Empty reports whether there is nothing to commit.
func (b *Batch) Empty() bool { return b.batch.Empty() && len(b.errs) == 0 }

// Len is the size of the batch in bytes.
func (b *Batch) Len() int { return b.batch.Len() }

// Commit writes everything or nothing, and returns when it is durable. The batch is spent. With
// statedb.ErrUnavailable the disk is full or read-only, and the batch may still be written, before
// any later commit: its contents must be in the next one too.
func (b *Batch) Commit() error {
	if err := errors.Join(b.errs...); err != nil {
		return fmt.Errorf("state database: %w", errors.Join(err, b.batch.Close()))
	}
	if b.batch.Empty() {
		return statedb.Wrap(b.batch.Close())
	}
	return b.db.state.Commit(b.batch)
}

// getFrom returns a copy of a value, nil when there is none.
func getFrom(from pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, statedb.Wrap(err)
	}
	value = append([]byte{}, value...)
	return value, closer.Close()
}

// retryEvery is how long RetryUntilWritten waits after a write that failed.
const retryEvery = time.Second

// RetryUntilWritten calls write until it succeeds, for what has to be on disk before anything that
// follows from it. It waits while the disk refuses: reading stops, nothing is lost. It fails only
// when ctx ends.
func RetryUntilWritten(
	ctx context.Context, ix *Indexer, log *slog.Logger, write func() error,
) error {
	for {
		if err := ix.db.state.WaitAvailable(ctx); err != nil {
			return err
		}
		err := write()
		if err == nil {
			return nil
		}
		if !errors.Is(err, statedb.ErrUnavailable) { // which the database logs, once
			log.Error("what has to be on disk before reading continues can't be written to the "+
				"state directory; reading waits", "err", err)
		}
		if err := ratelimit.Sleep(ctx, retryEvery); err != nil {
			return err
		}
	}
}

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
func (b *Batch) leavesBody(ix *Indexer, key resource.Key, k *cacheLookup, s *NewState) bool {
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
