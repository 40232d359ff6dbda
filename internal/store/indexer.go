package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/statedb"
)

// IndexerConfig of one informer's Indexer.
type IndexerConfig struct {
	// Name of the informer's unit, unique in the database.
	Name string
	// Scope is what the informer selects (API version aside): when it differs from last time, the
	// saved position no longer covers everything and is forgotten; the settled state stays, so that
	// a relist finds the differences.
	Scope string
	// Narrowing has the earlier scopes with which the position is still valid, and what of the
	// settled state belongs to others under a new scope. Zero: none, and nothing.
	Narrowing Narrowing
	// Type of the objects.
	Type resource.Type
	// ExactBodies writes each body with its version, whatever DB.SetBodiesPerSecond: for units
	// that need an object as it was at a version.
	ExactBodies bool
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
	overlay   map[resource.Key]Settled
	records   *recordCache // what was committed since the start
	uncached  *uncached    // nil: what is not cached may be in the database
	announced Announcements
	listing   Listing
	behind    Behind
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
		db: db, id: id, cfg: cfg, overlay: map[resource.Key]Settled{},
		records: newRecordCache(),
	}
	ix.announced.ix, ix.announced.byKey = ix, map[resource.Key][]announcement{}
	ix.listing.ix, ix.behind.ix = ix, ix
	if ix.meta, err = db.newMeta(id, cfg.Name); err != nil {
		return nil, err
	}
	ix.log = Log{db, id}
	if err := errors.Join(ix.announced.load(), ix.checkEmpty(), ix.behind.load()); err != nil {
		return nil, fmt.Errorf("state of informer %s: %w", cfg.Name, err)
	}
	return ix, nil
}

// Meta is what is known of the unit beside its objects and its log.
func (ix *Indexer) Meta() *Meta { return ix.meta }

// Announcements are the objects of which an Added may have been sent, and nothing is settled.
func (ix *Indexer) Announcements() *Announcements { return &ix.announced }

// Listing is the list that is being worked through.
func (ix *Indexer) Listing() *Listing { return &ix.listing }

// Behind are the objects of which the database has the body of an earlier version only.
func (ix *Indexer) Behind() *Behind { return &ix.behind }

// Log is the part of the unit's change log that lies on disk.
func (ix *Indexer) Log() Log { return ix.log }

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

func (db *DB) newInformer(key []byte, scope string) (uint32, error) {
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

// Get returns the newest record of an object, tombstones included. Found is false for an object
// never seen, or deleted and forgotten.
func (ix *Indexer) Get(key resource.Key) (rec Record, found bool, err error) {
	ix.mu.RLock()
	if over, ok := ix.overlay[key]; ok {
		ix.mu.RUnlock()
		return over.Record, true, nil
	}
	settled, isKnown := ix.records.get(key)
	isElsewhere := ix.uncached.mayExist(key)
	ix.mu.RUnlock()
	switch {
	case isKnown:
		return settled.record(), true, nil
	case !isElsewhere:
		return Record{}, false, nil
	}
	// Not in the overlay: a change that was there was committed before it was removed, so the
	// database has it.
	value, closer, err := ix.db.pebble.Get(objectKey(spaceRecord, ix.id, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("state database: %w", err)
	}
	rec, err = parseRecord(value)
	return rec, err == nil, errors.Join(err, closer.Close())
}

// ChangedSince reports whether an object has an unsettled change with a later number than seq.
func (ix *Indexer) ChangedSince(key resource.Key, seq uint64) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	over, ok := ix.overlay[key]
	return ok && over.Seq > seq
}

// Object returns the newest known state of an object, nil when it is not known or gone.
func (ix *Indexer) Object(key resource.Key) (*resource.Object, error) {
	ix.mu.RLock()
	over, ok := ix.overlay[key]
	ix.mu.RUnlock()
	if ok {
		return over.Object, nil
	}
	return ix.settledObject(key)
}

// settledObject reads a body from the database.
func (ix *Indexer) settledObject(key resource.Key) (*resource.Object, error) {
	value, closer, err := ix.db.pebble.Get(objectKey(spaceBody, ix.id, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state database: %w", err)
	}
	obj, err := ix.parseBody(key, value)
	return obj, errors.Join(err, closer.Close())
}

// parseBody parses a stored body.
func (ix *Indexer) parseBody(key resource.Key, stored []byte) (*resource.Object, error) {
	raw, err := ix.db.bodies.decode(stored)
	if err != nil {
		return nil, err
	}
	obj, err := resource.Restore(raw, ix.cfg.Type)
	if err != nil {
		return nil, fmt.Errorf("state database: body of %s %s: %w", ix.cfg.Type, key, err)
	}
	return obj, nil
}

// Update makes s the newest state of an object: it lives, or is gone. Seq orders the changes of one
// informer.
func (ix *Indexer) Update(key resource.Key, s Settled) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.overlay[key] = s
}

// Settled is the state in which a change leaves an object.
type Settled struct {
	Record
	Object *resource.Object // nil when deleted
	Seq    uint64
}

// Forget drops from the overlay what a commit has made durable. Newer changes stay.
func (ix *Indexer) Forget(settled map[resource.Key]Settled) {
	ix.announced.forget(settled)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for key, s := range settled {
		if over, ok := ix.overlay[key]; ok && over.Seq <= s.Seq {
			delete(ix.overlay, key)
		}
		ix.cacheLocked(key, s.Record)
	}
	ix.behind.committedLocked()
}
