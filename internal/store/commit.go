package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// Position is where an informer can resume.
type Position struct {
	// Version is the watermark; "" for none.
	Version resource.Version `json:"version"`
	// Time of the commit that wrote it, for people.
	Time time.Time `json:"time"`
}

// Position reads the saved position, zero when there is none.
func (ix *Indexer) Position() (Position, error) {
	value, err := ix.db.get(prefix(spacePosition, ix.id))
	if err != nil || value == nil {
		return Position{}, err
	}
	var p Position
	if err := json.Unmarshal(value, &p); err != nil {
		return p, fmt.Errorf("state of informer %s: the position does not parse: %w", ix.cfg.Name,
			err)
	}
	return p, nil
}

// A position without a version is one that was forgotten, or that is about to be known. It says
// that readers may rely on what they were sent: a list that begins without a position is a gap for
// them.

// GapOwed reports whether a list that begins without a position is a gap: a list of everything has
// ended before, or a sink may hold events of a state that was lost. Else the list continues with a
// first one, of which no reader was told that it is complete.
func (ix *Indexer) GapOwed() (bool, error) {
	value, err := ix.db.get(prefix(spacePosition, ix.id))
	return value != nil, err
}

// SetGapOwed records it, durably, before a reader may rely on anything.
func (ix *Indexer) SetGapOwed() error {
	if owed, err := ix.GapOwed(); owed || err != nil {
		return err
	}
	b := ix.db.NewBatch()
	b.forgetPosition(ix.id)
	return ix.db.finish(b.batch, ix.db.sync, b.errs...)
}

// forgetPosition makes the next start a list, and a gap.
func (b *Batch) forgetPosition(id uint32) { b.put(prefix(spacePosition, id), []byte("{}")) }

// Epoch counts how often the server's history went back, as far as one informer has seen, and how
// often its state was lost. The next epoch may reuse versions for other states.
type Epoch struct {
	Number int `json:"number"`
	// Open is set until the list that began it is settled: a restart before that will find the same
	// rewind again.
	Open bool `json:"open,omitzero"`
}

// Epoch reads the informer's epoch, zero before the first rewind.
func (ix *Indexer) Epoch() (Epoch, error) {
	var e Epoch
	value, err := ix.db.get(prefix(spaceEpoch, ix.id))
	if err != nil || value == nil {
		return e, err
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("state of informer %s: the epoch does not parse: %w", ix.cfg.Name, err)
	}
	return e, nil
}

// BeginEpoch begins the next epoch, durably, unless one is open: that is the same rewind, met again
// after a crash, maybe from another version, and its events keep their ids. It ends what
// SetDiverged has recorded.
func (ix *Indexer) BeginEpoch() (Epoch, error) {
	ix.dropCache() // a body may be of the lost history: the next state of its object writes its own
	e, err := ix.Epoch()
	diverged, failed := ix.divergedOnDisk()
	if err = errors.Join(err, failed); err != nil || e.Open && !diverged {
		return e, err
	}
	e = Epoch{Number: e.Number + 1, Open: true}
	value, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	b := ix.db.NewBatch()
	b.put(prefix(spaceEpoch, ix.id), value)
	b.fail(b.batch.Delete(prefix(spaceDiverged, ix.id), nil))
	return e, ix.db.finish(b.batch, ix.db.sync, b.errs...)
}

// AdoptEpoch sets the epoch of an informer that knows nothing yet: to that of another replica, so
// that both use the same ids, or to the one after that of a lost state.
func (ix *Indexer) AdoptEpoch(number int) error {
	value, err := json.Marshal(Epoch{Number: number})
	if err != nil {
		return fmt.Errorf("encode epoch: %w", err)
	}
	b := ix.db.NewBatch()
	b.put(prefix(spaceEpoch, ix.id), value)
	return ix.db.finish(b.batch, ix.db.sync, b.errs...)
}

// SinkEpochs is how many epochs the events of a sink are ahead of the informer's: its broker held
// events of later ones, which was found when the informer had begun.
func (ix *Indexer) SinkEpochs(sink string) (int, error) {
	value, err := ix.db.get(append(prefix(spaceEpoch, ix.id), sink...))
	if err != nil || value == nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return 0, fmt.Errorf("state of informer %s: the epochs of sink %s do not parse: %w",
			ix.cfg.Name, sink, err)
	}
	return n, nil
}

// SetSinkEpochs records SinkEpochs, durably.
func (ix *Indexer) SetSinkEpochs(sink string, n int) error {
	b := ix.db.NewBatch()
	b.put(append(prefix(spaceEpoch, ix.id), sink...), strconv.AppendInt(nil, int64(n), 10))
	return ix.db.finish(b.batch, ix.db.sync, b.errs...)
}

// EndEpoch records that a list is settled: a later rewind is another one. It belongs into the
// commit of the list's version.
func (b *Batch) EndEpoch(ix *Indexer) {
	e, err := ix.Epoch()
	b.fail(err)
	if !e.Open {
		return
	}
	e.Open = false
	value, err := json.Marshal(e)
	b.fail(err)
	b.put(prefix(spaceEpoch, ix.id), value)
}

// Batch is one atomic commit: settled objects and watermarks of any number of informers. It is used
// by one goroutine.
type Batch struct {
	db    *DB
	batch *pebble.Batch
	body  []byte // reused between bodies, as are those below
	key   []byte
	value []byte
	errs  []error
}

// NewBatch begins a commit.
func (db *DB) NewBatch() *Batch {
	if db.disk != nil {
		db.disk.look()
	}
	return &Batch{db: db, batch: db.pebble.NewBatch()}
}

// Settle writes an object's last settled state.
func (b *Batch) Settle(ix *Indexer, key resource.Key, s Settled) {
	bodyInPlace := b.dropAnnounced(ix, key, &s)
	b.value = s.Record.append(b.value[:0])
	var k cacheLookup
	if !s.Deleted {
		b.put(b.keyOf(spaceRecord, ix, key), b.value)
		leaves := !bodyInPlace && b.leavesBody(ix, key, &k, &s)
		if !bodyInPlace && !leaves {
			b.body = ix.db.bodies.encode(b.body, s.Object.Raw)
			b.put(b.keyOf(spaceBody, ix, key), b.body)
		}
		b.setBehind(ix, key, &k, leaves)
		return
	}
	b.setBehind(ix, key, &k, false)
	b.fail(b.batch.Delete(b.keyOf(spaceBody, ix, key), nil))
	if !s.Version.Ordered() {
		// Without an order no watermark ever passes it, and a replay can't be distinguished from a
		// change: keep nothing.
		b.fail(b.batch.Delete(b.keyOf(spaceRecord, ix, key), nil))
		return
	}
	b.put(b.keyOf(spaceRecord, ix, key), b.value)
	b.put(tombstoneKey(ix.id, s.Version, key), nil)
}

// keyOf is objectKey in the batch's own memory: it is valid until the next.
func (b *Batch) keyOf(space byte, ix *Indexer, key resource.Key) []byte {
	b.key = append(appendPrefix(b.key[:0], space, ix.id), key...)
	return b.key
}

// SetPosition moves the watermark and drops tombstones that it has passed, as DropPassed does. It
// comes before the Settle calls of its batch: they may write again what it deletes.
func (b *Batch) SetPosition(ix *Indexer, version resource.Version) (more bool) {
	value, err := json.Marshal(Position{Version: version, Time: time.Now().UTC()})
	b.fail(err)
	b.put(prefix(spacePosition, ix.id), value)
	return b.DropPassed(ix, version)
}

func (b *Batch) put(key, value []byte) { b.fail(b.batch.Set(key, value, nil)) }

func (b *Batch) fail(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// Empty reports whether there is nothing to commit.
func (b *Batch) Empty() bool { return b.batch.Empty() && len(b.errs) == 0 }

// Len is the size of the batch in bytes.
func (b *Batch) Len() int { return b.batch.Len() }

// Commit writes everything or nothing, and returns when it is durable. The batch is spent. With
// ErrUnavailable the disk is full or read-only, and the batch may still be written, before any
// later commit: its contents must be in the next one too.
func (b *Batch) Commit() error {
	if err := errors.Join(b.errs...); err != nil {
		return fmt.Errorf("state database: %w", errors.Join(err, b.batch.Close()))
	}
	if b.batch.Empty() {
		return wrap(b.batch.Close())
	}
	return wrapOther(b.db.commit(b.batch))
}
