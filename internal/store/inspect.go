package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
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

// Unit is the state of one unit of an informer, as an Inspector finds it. It can be read until the
// Inspector is closed.
type Unit struct {
	// Name under which the unit's state is kept.
	Name string
	// Scope is what it selected when it last ran.
	Scope string

	ix *Indexer // without an overlay: nothing is unsettled
}

// Position is where the unit will resume, zero when it will begin with a list.
func (u Unit) Position() (Position, error) {
	p, err := (&Meta{db: u.ix.db, id: u.ix.id, name: u.Name}).Position()
	return p, u.ix.db.state.ReadError(err)
}

// Usage is what a unit's state consists of.
type Usage struct {
	// Objects are those that exist, Tombstones those that are gone, as far as their records are
	// still needed.
	Objects, Tombstones int
	// Damaged counts the records that can't be understood.
	Damaged int
	// Waiting are the spooled changes that some sink still needs; some may have been sent since the
	// last commit.
	Waiting int
	// RecordBytes, BodyBytes and WaitingBytes are what they take, with their keys, as stored:
	// bodies compressed.
	RecordBytes, BodyBytes, WaitingBytes int64
}

// Usage counts. It reads all of the unit's state once, decodes no body, and needs no memory for it.
// With an error it is what was counted until then.
func (u Unit) Usage() (Usage, error) {
	var usage Usage
	for e, err := range u.entries(spaceRecord) {
		if err != nil {
			return usage, err
		}
		usage.RecordBytes += int64(len(e.key) + len(e.value))
		switch rec, err := parseRecord(e.value); {
		case err != nil:
			usage.Damaged++
		case rec.Deleted:
			usage.Tombstones++
		default:
			usage.Objects++
		}
	}
	var err error
	if _, usage.BodyBytes, err = u.sum(spaceBody); err != nil {
		return usage, err
	}
	usage.Waiting, usage.WaitingBytes, err = u.sum(spaceLog)
	return usage, err
}

func (u Unit) sum(space byte) (n int, bytes int64, err error) {
	for e, err := range u.entries(space) {
		if err != nil {
			return n, bytes, err
		}
		n++
		bytes += int64(len(e.key) + len(e.value))
	}
	return n, bytes, nil
}

// Keys yields the keys of the objects that exist, in their order.
func (u Unit) Keys() iter.Seq2[resource.Key, error] {
	return func(yield func(resource.Key, error) bool) {
		for e, err := range u.entries(spaceRecord) {
			if err != nil {
				yield("", err)
				return
			}
			// One that does not parse can't be read either, so its key is useless.
			if rec, err := parseRecord(e.value); err != nil || rec.Deleted {
				continue
			}
			if !yield(resource.Key(e.key[len(prefix(spaceRecord, 0)):]), nil) {
				return
			}
		}
	}
}

// Objects counts the existing objects, as of the last commit. It reads all records, so don't call
// it often.
func (ix *Indexer) Objects() (int, error) {
	n := 0
	for _, err := range (Unit{Name: ix.cfg.Name, ix: ix}).Keys() {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// entry is a key and its value in the database. They are valid until the next one.
type entry struct{ key, value []byte }

// entries iterates over one space of the unit.
func (u Unit) entries(space byte) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		it, err := u.ix.iterator(space)
		if err != nil {
			yield(entry{}, err)
			return
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				break // Error returns it too
			}
			if !yield(entry{it.Key(), value}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(entry{}, u.ix.db.state.ReadError(fmt.Errorf("state of informer %s: %w", u.Name, err)))
		}
	}
}

// Object reads the last settled state of an object; see Indexer.Stored.
func (u Unit) Object(key resource.Key) (s SettledState, found bool, err error) {
	return u.ix.Stored(key)
}

// Check reads every table of the database, also the parts that no unit reads, and checks checksums
// and order. It returns how many keys there are. It ends at the first damage, which is
// statedb.ErrDamaged.
func (in *Inspector) Check() (keys int64, err error) { return in.db.state.Check() }

// Check reads all objects of the unit, decodes them, and counts those that can be read. The errors
// of the others are joined, up to a few.
func (u Unit) Check() (readable int, err error) {
	const most = 10
	var errs []error
	for key, err := range u.Keys() {
		if err != nil {
			return readable, errors.Join(append(errs, err)...)
		}
		if _, _, err = u.Object(key); err == nil {
			readable++
		} else if len(errs) < most {
			errs = append(errs, fmt.Errorf("%s: %w", key, u.ix.db.state.ReadError(err)))
		}
	}
	return readable, errors.Join(errs...)
}

// Reset makes a unit forget, in a state directory that no bridge has open. With keepObjects it
// forgets its position only: at the next start it lists, and the differences from the objects that
// it knows are published, after the spooled changes. Otherwise it forgets everything, spooled
// changes and its name too: it starts as a new one would.
//
// All is forgotten or nothing, and it is on disk when Reset returns. It reads nothing of what it
// forgets, so it also removes records that can't be understood. It does not repair damaged files
// (statedb.ErrDamaged): sooner or later a bridge would read them, and end. The space is released
// while bridges run.
func Reset(o statedb.Options, unit string, keepObjects bool) (err error) {
	if err := checkUnit(o, unit); err != nil {
		return err
	}
	db, err := openExisting(o, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.reset(o.Dir, unit, keepObjects)
}

// checkUnit reads the directory before anything is opened for writing: that alone would convert the
// files of a database that is not ours.
func checkUnit(o statedb.Options, unit string) error {
	in, err := Inspect(o)
	if err != nil {
		return err
	}
	defer in.Close()
	units, err := in.Units()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(units, func(u Unit) bool { return u.Name == unit }) {
		return noUnit(o.Dir, unit)
	}
	return nil
}

func noUnit(dir, unit string) error {
	return fmt.Errorf("state directory %s has no informer %s", dir, unit)
}

func (db *DB) reset(dir, unit string, keepObjects bool) error {
	key := informerKey(unit)
	value, err := db.state.Get(key)
	if err != nil {
		return db.state.ReadError(err)
	}
	if len(value) < 4 {
		return noUnit(dir, unit)
	}
	id := binary.BigEndian.Uint32(value)
	b := db.NewBatch()
	if keepObjects {
		b.forgetPosition(id)
		return b.Commit()
	}
	for _, space := range unitSpaces {
		begin := prefix(space, id)
		b.Fail(b.batch.DeleteRange(begin, after(begin), nil))
	}
	b.Fail(b.batch.Delete(key, nil)) // its number is not reused
	return b.Commit()
}
