package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// Meta is what is known of an informer's unit beside its objects and its log. It may be used
// concurrently.
//
// It is two records, since two write at their own times: the committer writes the watermark, with
// what it stands for; the controller writes all else, and before it runs the informer.
type Meta struct {
	db        *DB
	id        uint32
	name      string
	mu        sync.Mutex   // held while the record is changed
	selection atomic.Int64 // that of the record: it is asked for with each change
}

// metaRecord is what the controller writes.
type metaRecord struct {
	Epoch int `json:"epoch,omitempty"`
	// Open is set when Epoch began with a list: it ends when the watermark is of that epoch.
	Open     bool `json:"open,omitempty"`
	Diverged bool `json:"diverged,omitempty"`
	// Listed is set when a list of everything begins, and Since is that of the list when it ends.
	Listed    bool             `json:"listed,omitempty"`
	Since     resource.Version `json:"since,omitempty"`
	Selection int              `json:"selection,omitempty"`
	Redaction string           `json:"redaction,omitempty"`
	GapOwed   bool             `json:"gapOwed,omitempty"`
}

// Position is where an informer can resume.
type Position struct {
	// Version is the watermark; "" for none.
	Version resource.Version `json:"version"`
	// Epoch is that of the last list of everything that is settled.
	Epoch int `json:"epoch,omitempty"`
	// Time of the commit that wrote it, for people.
	Time time.Time `json:"time"`
}

func (db *DB) newMeta(id uint32, name string) (*Meta, error) {
	m := &Meta{db: db, id: id, name: name}
	r, err := m.read()
	m.selection.Store(int64(r.Selection))
	return m, err
}

func (m *Meta) read() (r metaRecord, err error) {
	_, err = m.db.getJSON(prefix(spaceMeta, m.id), m.name, &r)
	return r, err
}

// getJSON reads a record of a unit. found is false when there is none.
func (db *DB) getJSON(key []byte, unit string, into any) (found bool, err error) {
	value, err := db.state.Get(key)
	if err != nil || value == nil {
		return false, err
	}
	if err := json.Unmarshal(value, into); err != nil {
		return true, fmt.Errorf("state of informer %s: its record %c does not parse; the directory "+
			"is damaged: restore it from a copy, or reset the informer: %w", unit, key[0], err)
	}
	return true, nil
}

// change changes the record, durably with pebble.Sync.
func (m *Meta) change(sync *pebble.WriteOptions, edit func(*metaRecord)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.read()
	if err != nil {
		return err
	}
	before := r
	if edit(&r); r == before {
		return nil
	}
	b := m.db.NewBatch()
	b.setMeta(m.id, r)
	if err := m.db.state.Finish(b.batch, sync, b.errs...); err != nil {
		return err
	}
	m.selection.Store(int64(r.Selection))
	return nil
}

func (b *Batch) setMeta(id uint32, r metaRecord) { b.putJSON(prefix(spaceMeta, id), r) }

// Position reads the saved position, zero when there is none.
func (m *Meta) Position() (p Position, err error) {
	_, err = m.db.getJSON(prefix(spacePosition, m.id), m.name, &p)
	return p, err
}

// SetPosition moves the watermark and drops tombstones that it has passed, as DropPassed does. It
// comes before the Settle calls of its batch: they may write again what it deletes.
func (b *Batch) SetPosition(ix *Indexer, version resource.Version, epoch int) (more bool) {
	b.putJSON(prefix(spacePosition, ix.id), Position{version, epoch, time.Now().UTC()})
	return b.DropPassed(ix, version)
}

// A position without a version is one that was forgotten. It says that readers may rely on what
// they were sent: a list that begins without a position is a gap for them.

// forgetPosition makes the next start a list, and a gap.
func (b *Batch) forgetPosition(id uint32) {
	var p Position // one that does not parse is forgotten too
	_, _ = b.db.getJSON(prefix(spacePosition, id), "", &p)
	b.putJSON(prefix(spacePosition, id), Position{Epoch: p.Epoch})
}

// GapOwed reports whether a list that begins without a position is a gap: a list of everything has
// ended before, or a sink may hold events of a state that was lost. Else the list continues with a
// first one, which was never reported as complete.
// hasSettled reports whether a position was ever saved: consumers have had all of a list.
func (m *Meta) GapOwed() (owed, hasSettled bool, err error) {
	r, err := m.read()
	if err != nil {
		return false, false, err
	}
	hasSettled, err = m.db.getJSON(prefix(spacePosition, m.id), m.name, new(Position))
	return r.GapOwed || hasSettled, hasSettled, err
}

// SetGapOwed records it, durably, before a reader may rely on anything.
func (m *Meta) SetGapOwed() error {
	if owed, _, err := m.GapOwed(); owed || err != nil {
		return err
	}
	return m.change(pebble.Sync, func(r *metaRecord) { r.GapOwed = true })
}

// Epoch counts how often the server's history went back, as far as one informer has seen, and how
// often its state was lost. The next epoch may reuse versions for other states.
type Epoch struct {
	Number int
	// Open is set until the list that began it is settled: a restart before that will find the same
	// rewind again.
	Open bool
}

// Epoch reads the informer's epoch, zero before the first rewind.
func (m *Meta) Epoch() (Epoch, error) {
	r, err := m.read()
	if err != nil {
		return Epoch{}, err
	}
	return m.epoch(&r)
}

// epoch is that of a record. The list that began it is settled when the watermark says so: only the
// commit with that list can know.
func (m *Meta) epoch(r *metaRecord) (Epoch, error) {
	if !r.Open {
		return Epoch{Number: r.Epoch}, nil
	}
	p, err := m.Position()
	return Epoch{Number: r.Epoch, Open: p.Epoch < r.Epoch}, err
}

// BeginEpoch begins the next epoch, durably, unless one is open: that is the same rewind, met again
// after a crash, maybe from another version, and its events keep their ids. It ends what
// SetDiverged has recorded.
func (m *Meta) BeginEpoch() (Epoch, error) {
	var failed error
	if err := m.change(pebble.Sync, func(r *metaRecord) {
		var e Epoch
		if e, failed = m.epoch(r); failed != nil || e.Open && !r.Diverged {
			return
		}
		r.Epoch, r.Open, r.Diverged = r.Epoch+1, true, false
	}); err != nil || failed != nil {
		return Epoch{}, errors.Join(err, failed)
	}
	return m.Epoch()
}

// AdoptEpoch sets the epoch of an informer that knows nothing yet: to that of another replica, so
// that both use the same ids, or to the one after that of a lost state.
func (m *Meta) AdoptEpoch(number int) error {
	return m.change(pebble.Sync, func(r *metaRecord) { r.Epoch, r.Open = number, false })
}

// SetDiverged records, durably, that the server's history was found to be another, though its
// version is not lower. The list that follows removes the record when it begins an epoch.
func (m *Meta) SetDiverged() error {
	return m.change(pebble.Sync, func(r *metaRecord) { r.Diverged = true })
}

// Diverged reports whether everything must be listed and compared by equality before anything else
// is read: the server's history is another than the known one, and the list that follows from that
// is not settled. A watch from the position would not show it: the server may have reached that
// version again.
func (m *Meta) Diverged() (bool, error) {
	r, err := m.read()
	if err != nil || r.Diverged {
		return r.Diverged, err
	}
	e, err := m.epoch(&r)
	return e.Open, err
}

// SinkEpochs is how many epochs the events of a sink are ahead of the informer's: its broker held
// events of later ones, which was found when the informer had begun.
func (m *Meta) SinkEpochs(sink string) (n int, err error) {
	_, err = m.db.getJSON(m.sinkKey(spaceMeta, sink), m.name, &n)
	return n, err
}

// SetSinkEpochs records SinkEpochs, durably.
func (m *Meta) SetSinkEpochs(sink string, n int) error {
	b := m.db.pebble.NewBatch()
	return m.db.state.Finish(b, pebble.Sync,
		b.Set(m.sinkKey(spaceMeta, sink), strconv.AppendInt(nil, int64(n), 10), nil))
}

func (m *Meta) sinkKey(space byte, sink string) []byte {
	return append(prefix(space, m.id), sink...)
}

// Since is the version of the API server since which the state has every change: that of the last
// list of everything. "" during one, and when none was recorded.
func (m *Meta) Since() (resource.Version, error) {
	r, err := m.read()
	return r.Since, err
}

// BeginList records that a list of everything begins: durably where a watch could resume from the
// watermark, before a sink has anything of the list.
func (m *Meta) BeginList() error {
	p, err := m.Position()
	if err != nil {
		return err
	}
	sync := pebble.NoSync
	if p.Version != "" {
		sync = pebble.Sync
	}
	return m.change(sync, func(r *metaRecord) { r.Listed, r.Since = true, "" })
}

// EndList records the version of the list that has ended. It does not wait for the disk: the
// database's log is in order, so a later commit with the list's changes is not on disk without it.
func (m *Meta) EndList(version resource.Version) error {
	return m.change(pebble.NoSync, func(r *metaRecord) { r.Since = version })
}

// ListPending reports whether a list of everything has begun, and the watermark has not reached its
// end. Sinks may have newer versions of objects than the watermark.
func (m *Meta) ListPending() (bool, error) {
	r, err := m.read()
	if err != nil || !r.Listed {
		return false, err
	}
	p, err := m.Position()
	return p.Version != "" && (r.Since == "" || r.Since.Newer(p.Version)), err
}

// Selection is how often the informer has selected something else before. Objects that are selected
// again may come in a version that was sent before, and need other ids.
func (m *Meta) Selection() int { return int(m.selection.Load()) }

// AdoptSelection raises the number to that of another replica, so that both use the same ids.
func (m *Meta) AdoptSelection(number int) error {
	return m.change(pebble.Sync, func(r *metaRecord) { r.Selection = max(r.Selection, number) })
}

// reselect adds to a batch that the selection is another. Objects that had left may be selected now
// in the same version, so nothing is remembered of them: a list follows, and no watch brings
// earlier versions. They are forgotten at once: without the batch, at worst deletes are sent again.
func (b *Batch) reselect(id uint32) {
	r, err := (&Meta{db: b.db, id: id}).read()
	b.Fail(err)
	r.Selection++
	b.setMeta(id, r)
	b.Fail((&Indexer{db: b.db, id: id}).dropAllTombstones((*Batch).Commit))
}

// Redaction names what was removed from the informer's bodies and log; "" for nothing.
func (m *Meta) Redaction() (string, error) {
	r, err := m.read()
	return r.Redaction, err
}

// SetRedaction sets it, durably.
func (m *Meta) SetRedaction(name string) error {
	return m.change(pebble.Sync, func(r *metaRecord) { r.Redaction = name })
}

// Omits returns the configuration's keys by which the stream of a sink left versions out when a run
// before said so; found is false when none did.
func (m *Meta) Omits(sink string) (keys string, found bool, err error) {
	value, err := m.db.state.Get(m.sinkKey(spaceOmits, sink))
	return string(value), value != nil, err
}

// SetOmits writes them.
func (b *Batch) SetOmits(ix *Indexer, sink, keys string) {
	b.put(append(prefix(spaceOmits, ix.id), sink...), []byte(keys))
}
