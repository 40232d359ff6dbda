package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kubebridge/bridge/internal/store/statedb"
)

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
