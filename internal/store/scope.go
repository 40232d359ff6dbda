package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Namespace is where a namespace stands with an informer that selects namespaces.
type Namespace struct {
	State resource.NamespaceState
	// Entered is the version of the Namespace with which it came in, where it had been selected
	// before. Its objects may then come again in a version that was reported before, and the ids
	// distinguish one time from the other. "" the first time.
	Entered resource.Version
	// AsOf is the version as of which its objects are listed when it enters, or were; "" where
	// everything was listed. It is the same after a crash, and nothing of the namespace is reported
	// up to it but the list: or what was reported before the crash would be reported again in an
	// earlier state.
	AsOf resource.Version
}

// append encodes it: the state, the length of Entered, Entered, AsOf.
func (n Namespace) append(dst []byte) []byte {
	dst = append(dst, byte(n.State), byte(len(n.Entered)))
	return append(append(dst, n.Entered...), n.AsOf...)
}

func parseNamespace(b []byte) (n Namespace, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) || b[0] == 0 ||
		resource.NamespaceState(b[0]) > resource.NamespaceLeaving {
		return n, false
	}
	entered := 2 + int(b[1])
	return Namespace{
		State: resource.NamespaceState(b[0]), Entered: resource.Version(b[2:entered]),
		AsOf: resource.Version(b[entered:]),
	}, true
}

// Namespaces reads what is known of the namespaces that are selected, or were.
func (m *Meta) Namespaces() (map[string]Namespace, error) {
	it, err := m.db.iterator(m.id, spaceNamespace, "")
	if err != nil {
		return nil, err
	}
	list := map[string]Namespace{}
	for it.First(); it.Valid(); it.Next() {
		name := string(it.Key()[len(prefix(spaceNamespace, 0)):])
		n, ok := parseNamespace(it.Value())
		if !ok {
			err = fmt.Errorf("state of informer %s: the entry of namespace %s does not parse; "+
				"the directory is damaged, or of another version of the bridge", m.name, name)
			break
		}
		list[name] = n
	}
	return list, errors.Join(err, statedb.Wrap(it.Error()), statedb.Wrap(it.Close()))
}

// SetNamespace writes where a namespace stands.
func (b *Batch) SetNamespace(ix *Indexer, name string, n Namespace) {
	b.put(objectKey(spaceNamespace, ix.id, resource.Key(name)), n.append(nil))
}

// ForgetNamespace forgets a namespace.
func (b *Batch) ForgetNamespace(ix *Indexer, name string) {
	b.Fail(b.batch.Delete(objectKey(spaceNamespace, ix.id, resource.Key(name)), nil))
}

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
	for _, space := range []byte{spaceRecord, spaceBody, spaceAnnounced, spaceStale, spaceValues} {
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
		if space == spaceValues {
			b.Fail(b.dropEntries(id, key, it.Value(), nil))
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

// maxDropped is how many tombstones one batch drops. Each is looked up and deleted one by one:
// 300,000 in one batch made it 42 MB, and stopped other commits for several seconds.
const maxDropped = 10_000

// DropPassed drops tombstones that a watermark has passed, up to 10,000. more: some are left for
// later batches. It comes before the Settle calls of its batch: an object that is settled in the
// same commit may exist again, and later operations of a batch win.
func (b *Batch) DropPassed(ix *Indexer, watermark resource.Version) (more bool) {
	if !watermark.Ordered() {
		return false
	}
	return b.dropTombstones(ix, prefix(spaceTombstone, ix.id),
		after(tombstoneKey(ix.id, watermark, ""))) != nil
}

// Rewind prepares for another history of the server: it forgets all deleted objects of an informer,
// durably, since their versions mean nothing any more. A crash amid that leaves some of them. And
// the next state of each object writes its body, since the one that is there may be of the lost
// history.
func (ix *Indexer) Rewind() error {
	ix.dropCache()
	return ix.dropAllTombstones(func(b *Batch) error {
		return ix.db.state.Finish(b.batch, pebble.Sync, b.errs...)
	})
}

func (ix *Indexer) dropAllTombstones(commit func(*Batch) error) error {
	begin := prefix(spaceTombstone, ix.id)
	end := after(begin)
	for next := begin; next != nil; {
		b := ix.db.NewBatch()
		next = b.dropTombstones(ix, next, end)
		if err := commit(b); err != nil {
			return err
		}
	}
	return nil
}

// dropTombstones deletes the records of deleted objects whose tombstone keys are between two keys,
// except those of objects that exist again; up to maxDropped of them. next is the key to continue
// with, nil for none.
func (b *Batch) dropTombstones(ix *Indexer, from, end []byte) (next []byte) {
	it, err := ix.db.pebble.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		b.Fail(err)
		return nil
	}
	n := 0
	for it.First(); it.Valid() && n < maxDropped; it.Next() {
		b.dropTombstone(ix, it.Key())
		n++
	}
	if it.Valid() {
		next = append([]byte{}, it.Key()...)
	}
	b.Fail(it.Close())
	return next
}

func (b *Batch) dropTombstone(ix *Indexer, tombstone []byte) {
	// One by one: ranges that all begin at the same key would overlap, and Pebble keeps n of them
	// in memory as n² pieces.
	b.Fail(b.batch.Delete(tombstone, nil))
	tail := tombstone[len(prefix(spaceTombstone, ix.id)):]
	versionEnd := 1 + int(tail[0])
	version, key := resource.Version(tail[1:versionEnd]), resource.Key(tail[versionEnd:])
	record := objectKey(spaceRecord, ix.id, key)
	value, err := ix.db.state.Get(record)
	if err != nil {
		b.Fail(err)
		return
	}
	if rec, err := parseRecord(value); value != nil && err == nil && rec.Deleted &&
		rec.Version == version {
		b.Fail(b.batch.Delete(record, nil))
	}
}

// Rewrite rewrites all bodies, those of announcements too, and all entries of the log; the indexes
// are built again. When it returns nil, nothing of the old ones is on disk, except what the file
// system keeps. It is for an Indexer that nothing else uses yet.
func (ix *Indexer) Rewrite(body, entry func([]byte) ([]byte, error)) error {
	stored := func(stored []byte) ([]byte, error) {
		raw, err := ix.db.bodies.decode(stored)
		if err != nil {
			return nil, err
		}
		if raw, err = body(raw); err != nil {
			return nil, err
		}
		return ix.db.bodies.encode(nil, raw), nil
	}
	announced := func(value []byte) ([]byte, error) {
		_, tail, err := parseAnnouncement("", value)
		if err != nil || len(tail) == 0 {
			return value, err
		}
		rewritten, err := stored(tail)
		return append(bytes.Clone(value[:len(value)-len(tail)]), rewritten...), err
	}
	spaces := map[byte]func([]byte) ([]byte,
		error){spaceBody: stored, spaceLog: entry, spaceAnnounced: announced}
	for space, change := range spaces {
		if err := ix.rewrite(space, change); err != nil {
			return err
		}
	}
	if err := ix.restartIndexes(); err != nil {
		return err
	}
	for _, space := range append(slices.Collect(maps.Keys(spaces)), spaceEntry, spaceValues) {
		begin := prefix(space, ix.id)
		if err := ix.db.pebble.Compact(context.Background(), begin, after(begin),
			false); err != nil {
			return statedb.Wrap(err)
		}
	}
	return nil
}

// rewrite replaces every value of a space that changes.
func (ix *Indexer) rewrite(space byte, change func([]byte) ([]byte, error)) error {
	it, err := ix.iterator(space)
	if err != nil {
		return err
	}
	defer it.Close()
	b := ix.db.NewBatch()
	for it.First(); it.Valid(); it.Next() {
		value, err := change(it.Value())
		if err != nil {
			return errors.Join(err, b.batch.Close())
		}
		if !bytes.Equal(value, it.Value()) {
			b.put(bytes.Clone(it.Key()), value)
		}
		const enough = 8 << 20
		if b.Len() > enough {
			if err := b.Commit(); err != nil {
				return err
			}
			b = ix.db.NewBatch()
		}
	}
	if err := it.Error(); err != nil {
		return errors.Join(statedb.Wrap(err), b.batch.Close())
	}
	if err := b.Commit(); err != nil {
		return err
	}
	return statedb.Wrap(ix.db.pebble.Flush())
}
