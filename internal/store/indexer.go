package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// IndexerConfig of one informer's Indexer.
type IndexerConfig struct {
	// Name of the informer's unit, unique in the database.
	Name string
	// Scope is what the informer selects (API version aside). When it differs from last time, the
	// saved position no longer covers everything and is forgotten. The settled state stays, so that
	// a list finds the differences.
	Scope string
	// Narrowing has the earlier scopes with which the position is still valid, and what of the
	// settled state belongs to others under a new scope. Zero: none, and nothing.
	Narrowing Narrowing
	// Type of the objects.
	Type resource.Type
	// ExactBodies writes each body with its version, whatever DB.SetBodiesPerSecond: for units
	// that need an object as it was at a version.
	ExactBodies bool
	// Indexes are added when it is opened; see Indexes.AddIndexers.
	Indexes []Index
}

// Indexer is the newest known state of one informer's objects: an overlay of unsettled changes over
// the settled state on disk. One controller writes, anyone reads.
type Indexer struct {
	db  *DB
	id  uint32
	cfg IndexerConfig

	mu sync.RWMutex
	// overlay has the newest state of each object with unsettled changes. It is read before the
	// database, and copied before an iterator is opened: what a commit moves from one to the other
	// is then seen in both, never in neither.
	overlay   map[resource.Key]NewState
	records   *recordCache  // what was committed since the start
	uncached  *uncachedKeys // nil: what is not cached may be in the database
	announced Announcements
	listing   Listing
	stale     StaleBodies
	indexes   Indexes
	meta      *Meta
	log       Log
}

// Indexer opens the state of one informer. Only one Indexer per name may be open.
func (db *DB) Indexer(cfg IndexerConfig) (*Indexer, error) {
	id, err := db.informerID(cfg)
	if err != nil {
		return nil, fmt.Errorf("state of informer %s: %w", cfg.Name, err)
	}
	ix := &Indexer{
		db: db, id: id, cfg: cfg, overlay: map[resource.Key]NewState{},
		records: newRecordCache(),
	}
	ix.announced.ix, ix.announced.byKey = ix, map[resource.Key][]announcement{}
	ix.listing.ix, ix.stale.ix = ix, ix
	ix.indexes = newIndexes(ix)
	if ix.meta, err = db.newMeta(id, cfg.Name); err != nil {
		return nil, err
	}
	ix.log = Log{db, id}
	if err := errors.Join(ix.announced.load(), ix.checkEmpty(), ix.stale.load(),
		ix.indexes.AddIndexers(cfg.Indexes...)); err != nil {
		return nil, fmt.Errorf("state of informer %s: %w", cfg.Name, err)
	}
	return ix, nil
}

// Meta returns the unit's state beside its objects and its log.
func (ix *Indexer) Meta() *Meta { return ix.meta }

// Announcements returns the objects of which an Added may have been sent, and nothing is settled.
func (ix *Indexer) Announcements() *Announcements { return &ix.announced }

// Listing returns the list that is being worked through.
func (ix *Indexer) Listing() *Listing { return &ix.listing }

// StaleBodies returns the objects of which the database has the body of an earlier version only.
func (ix *Indexer) StaleBodies() *StaleBodies { return &ix.stale }

// Indexes returns the indexes of the objects.
func (ix *Indexer) Indexes() *Indexes { return &ix.indexes }

// Log returns the part of the unit's change log on disk.
func (ix *Indexer) Log() Log { return ix.log }

// checkEmpty finds out whether the unit begins with no record.
func (ix *Indexer) checkEmpty() error {
	it, err := ix.iterator(spaceRecord)
	if err != nil {
		return err
	}
	if !it.First() {
		ix.uncached = &uncachedKeys{keys: map[resource.Key]struct{}{}}
	}
	return statedb.Wrap(errors.Join(it.Error(), it.Close()))
}

// informerID returns the number of an informer's keys, a new one if there is none.
func (db *DB) informerID(cfg IndexerConfig) (uint32, error) {
	key := informerKey(cfg.Name)
	value, err := db.state.Get(key)
	if err != nil {
		return 0, err
	}
	if value == nil {
		return db.newInformer(key, cfg.Scope)
	}
	if len(value) < 4 {
		return 0, errors.New("its entry does not parse; the directory is damaged")
	}
	id := binary.BigEndian.Uint32(value)
	if string(value[4:]) == cfg.Scope {
		return id, nil
	}
	b := db.NewBatch()
	b.put(key, append(binary.BigEndian.AppendUint32(nil, id), cfg.Scope...))
	if before := string(value[4:]); !cfg.Narrowing.from(before) {
		position, err := db.state.Get(prefix(spacePosition, id))
		if b.Fail(err); position != nil {
			b.forgetPosition(id)
		}
		if !cfg.Narrowing.same(before) {
			b.reselect(id)
		}
	}
	if cfg.Narrowing.Keep != nil {
		if err := db.narrow(id, cfg.Narrowing.Keep); err != nil {
			return id, errors.Join(err, b.batch.Close())
		}
	}
	return id, b.Commit()
}

// newInformer takes the next number. While an earlier commit is still to be written it fails: that
// one may have taken the same number, and be written in the middle of this.
func (db *DB) newInformer(key []byte, scope string) (uint32, error) {
	if err := db.state.Unavailable(); err != nil {
		return 0, err
	}
	next := statedb.MetaKey("next-informer")
	value, err := db.state.Get(next)
	if err != nil {
		return 0, err
	}
	id := uint32(1)
	if len(value) == 4 {
		id = binary.BigEndian.Uint32(value)
	}
	b := db.NewBatch()
	b.put(key, append(binary.BigEndian.AppendUint32(nil, id), scope...))
	b.put(next, binary.BigEndian.AppendUint32(nil, id+1))
	return id, b.Commit()
}

// Forget drops from the overlay the states that a commit has made durable. Newer changes stay.
func (ix *Indexer) Forget(settled map[resource.Key]NewState) {
	ix.announced.forget(settled)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for key, s := range settled {
		if over, ok := ix.overlay[key]; ok && over.Seq <= s.Seq {
			delete(ix.overlay, key)
		}
		ix.cacheLocked(key, s.Record)
	}
	ix.stale.committedLocked()
	ix.indexes.committedLocked()
}

// Settle writes an object's last settled state.
func (b *Batch) Settle(ix *Indexer, key resource.Key, s NewState) {
	bodyInPlace := b.dropAnnounced(ix, key, &s)
	b.value = s.Record.append(b.value[:0])
	var k cacheLookup
	b.indexObject(ix, key, &k, s.Object)
	if !s.Deleted {
		b.put(b.keyOf(spaceRecord, ix, key), b.value)
		leaves := !bodyInPlace && b.leavesBody(ix, key, &k, &s)
		if !bodyInPlace && !leaves {
			b.body = ix.db.bodies.encode(b.body, s.Object.Raw)
			b.put(b.keyOf(spaceBody, ix, key), b.body)
		}
		b.setStale(ix, key, &k, leaves)
		return
	}
	b.setStale(ix, key, &k, false)
	b.Fail(b.batch.Delete(b.keyOf(spaceBody, ix, key), nil))
	if !s.Version.Ordered() {
		// Without an order no watermark ever passes it, and a replay can't be distinguished from a
		// change: keep nothing.
		b.Fail(b.batch.Delete(b.keyOf(spaceRecord, ix, key), nil))
		return
	}
	b.put(b.keyOf(spaceRecord, ix, key), b.value)
	b.put(tombstoneKey(ix.id, s.Version, key), nil)
}

// SettledState is the last settled state of one object: all sinks have it, or it is spooled for
// them.
type SettledState struct {
	Record
	// Body is the JSON as it was sent: without what was removed, and redacted. Nil when deleted. It
	// may be that of an earlier version, which it names (DB.SetBodiesPerSecond).
	Body []byte
	// BodyBytes is what the body takes in the database, compressed.
	BodyBytes int
}

// Stored reads the last settled state of an object, without unsettled changes. found is false for
// an unknown object: it never existed, or its tombstone is gone. With an error about the body, the
// record is still right. It may be called at any time, even while the Indexer is written.
func (ix *Indexer) Stored(key resource.Key) (s SettledState, found bool, err error) {
	// Record and body as one commit left them.
	snapshot := ix.db.pebble.NewSnapshot()
	defer snapshot.Close()
	record, err := getFrom(snapshot, objectKey(spaceRecord, ix.id, key))
	if err != nil || record == nil {
		return s, false, ix.db.state.ReadError(err)
	}
	if s.Record, err = parseRecord(record); err != nil {
		return s, false, ix.db.state.ReadError(err)
	}
	if s.Deleted {
		return s, true, nil
	}
	body, err := getFrom(snapshot, objectKey(spaceBody, ix.id, key))
	switch {
	case err != nil:
		return s, true, ix.db.state.ReadError(err)
	case body == nil:
		return s, true, errors.New("state database: the body is not there")
	}
	s.BodyBytes = len(body)
	s.Body, err = ix.db.bodies.decode(body)
	return s, true, err
}
