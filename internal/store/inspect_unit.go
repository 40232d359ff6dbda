package store

import (
	"fmt"
	"iter"

	"github.com/kubebridge/bridge/internal/resource"
)

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

// sum counts what is in one space, and its bytes.
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
func (u Unit) Object(key resource.Key) (s Stored, found bool, err error) { return u.ix.Stored(key) }
