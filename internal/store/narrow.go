package store

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// Narrowing says that an informer has another part of the objects than in a run before: what is not of its part is another's, which tells what
// happens to it. If it was told here to be deleted because no list has it, a living object would be.
type Narrowing struct {
	// From says whether everything that is selected now was selected in an earlier scope, so that no list is needed.
	From func(scope string) bool
	// Same says whether an earlier scope is of the same selection, and only the part of it is another.
	Same func(scope string) bool
	// Keep says whether an object is of the part. Others are forgotten when the scope is new.
	Keep func(resource.Key) bool
}

func (n *Narrowing) from(scope string) bool { return n.From != nil && n.From(scope) }

func (n *Narrowing) same(scope string) bool { return n.Same != nil && n.Same(scope) }

// narrowAtOnce bounds a batch.
const narrowAtOnce = 10_000

// narrow forgets the objects that are others' now, without a word: they live on. What waits on disk for sinks is still sent from here. The
// caller writes the new scope afterwards, so a crash amid it begins again.
func (db *DB) narrow(id uint32, keep func(resource.Key) bool) error {
	for _, space := range []byte{spaceRecord, spaceBody, spaceAnnounced, spaceBehind} {
		if err := db.narrowSpace(prefix(space, id), keep); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) narrowSpace(begin []byte, keep func(resource.Key) bool) (err error) {
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: begin, UpperBound: after(begin)})
	if err != nil {
		return wrap(err)
	}
	defer func() { err = errors.Join(err, wrap(it.Close())) }()
	b := db.NewBatch()
	for it.First(); it.Valid(); it.Next() {
		key, _, _ := bytes.Cut(it.Key()[len(begin):], []byte(announcedSeparator))
		if keep(resource.Key(key)) {
			continue
		}
		b.fail(b.batch.Delete(it.Key(), nil))
		if b.batch.Count() >= narrowAtOnce {
			if err := b.Commit(); err != nil {
				return err
			}
			b = db.NewBatch()
		}
	}
	return errors.Join(wrap(it.Error()), b.Commit())
}
