package store

import (
	"errors"
	"fmt"
)

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
