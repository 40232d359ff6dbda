package store

import (
	"github.com/cockroachdb/pebble/v2"

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
