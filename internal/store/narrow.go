package store

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Narrowing is a change of the part of the objects that an informer has. Objects outside its part
// belong to another bridge, which reports what happens to them. If they were deleted here because
// no list has them, living objects would get a delete.
type Narrowing struct {
	// From reports whether everything that is selected now was selected in an earlier scope, so
	// that no list is needed.
	From func(scope string) bool
	// Same reports whether an earlier scope has the same selection, and only another part of it.
	Same func(scope string) bool
	// Keep reports whether an object is of the part. Others are forgotten when the scope is new.
	Keep func(resource.Key) bool
}

func (n *Narrowing) from(scope string) bool { return n.From != nil && n.From(scope) }

func (n *Narrowing) same(scope string) bool { return n.Same != nil && n.Same(scope) }

// narrowAtOnce bounds a batch.
const narrowAtOnce = 10_000

// narrow forgets the objects that belong to others now, without events: they live on. Spooled
// changes are still sent from here. The caller writes the new scope afterwards, so a crash amid it
// starts it again.
func (db *DB) narrow(id uint32, keep func(resource.Key) bool) error {
	for _, space := range []byte{spaceRecord, spaceBody, spaceAnnounced, spaceStale} {
		if err := db.narrowSpace(space, id, keep); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) narrowSpace(space byte, id uint32, keep func(resource.Key) bool) (err error) {
	begin := prefix(space, id)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: begin, UpperBound: after(begin)})
	if err != nil {
		return statedb.Wrap(err)
	}
	defer func() { err = errors.Join(err, statedb.Wrap(it.Close())) }()
	b := db.NewBatch()
	for it.First(); it.Valid(); it.Next() {
		key := resource.Key(it.Key()[len(begin):])
		if space == spaceAnnounced {
			if key, _, _, err = splitAnnouncementKey(it.Key()[len(begin):]); err != nil {
				return errors.Join(err, b.batch.Close())
			}
		}
		if keep(key) {
			continue
		}
		b.Fail(b.batch.Delete(it.Key(), nil))
		if b.batch.Count() >= narrowAtOnce {
			if err := b.Commit(); err != nil {
				return err
			}
			b = db.NewBatch()
		}
	}
	return errors.Join(statedb.Wrap(it.Error()), b.Commit())
}
