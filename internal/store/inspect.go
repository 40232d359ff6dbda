package store

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Inspector reads a state directory that no bridge has open: for people who want to know what a
// bridge knows. It changes nothing, not even what a crash has left to be replayed. It may be used
// concurrently.
type Inspector struct {
	db  *DB
	dir string
}

// Inspect opens the state in o.Dir to read it. Unlike Open it creates nothing: without state it
// returns statedb.ErrNoState, for something else statedb.ErrForeign, and while a bridge runs
// statedb.ErrInUse. It holds the directory until Close.
func Inspect(o statedb.Options) (*Inspector, error) {
	db, err := openExisting(o, true)
	if err != nil {
		return nil, err
	}
	return &Inspector{db, o.Dir}, nil
}

// Close releases the directory. A second call does nothing.
func (in *Inspector) Close() error { return in.db.Close() }

// Summary reads what holds for the whole directory.
func (in *Inspector) Summary() (statedb.Summary, error) { return in.db.state.Summary() }

// Units lists the units of informers that have state here, by name, whether or not a configuration
// still has them.
func (in *Inspector) Units() ([]Unit, error) {
	it, err := in.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: []byte{spaceInformer},
		UpperBound: []byte{spaceInformer + 1},
	})
	if err != nil {
		return nil, statedb.Wrap(err)
	}
	defer it.Close()
	var units []Unit
	for it.First(); it.Valid(); it.Next() {
		name, value := string(it.Key()[1:]), it.Value()
		if len(value) < 4 {
			return nil, fmt.Errorf("state of informer %s: its entry does not parse; %s is "+
				"damaged: restore it from a copy, or move it away to start with a new "+
				"snapshot", name, in.dir)
		}
		units = append(units, Unit{
			Name: name, Scope: string(value[4:]),
			ix: &Indexer{
				db: in.db, id: binary.BigEndian.Uint32(value),
				cfg: IndexerConfig{Name: name},
			},
		})
	}
	if err := it.Error(); err != nil {
		return nil, in.db.state.ReadError(statedb.Wrap(err))
	}
	return units, nil
}
