package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

// The part of an informer's change log that lies on disk. What an entry means, and what a cursor
// says, is the informer's matter.

// LogEntry is one change of an informer's log on disk.
type LogEntry struct {
	Position uint64
	Data     []byte
}

func logKey(id uint32, position uint64) []byte {
	return binary.BigEndian.AppendUint64(prefix(spaceLog, id), position)
}

// AppendLog writes an entry.
func (b *Batch) AppendLog(ix *Indexer, e LogEntry) { b.put(logKey(ix.id, e.Position), e.Data) }

// TrimLog drops the entries from one position up to, and without, another. Trims that follow one
// another should not overlap: Pebble cuts overlapping range deletes into pieces, and n of them into
// n² in the worst case.
func (b *Batch) TrimLog(ix *Indexer, from, before uint64) {
	b.fail(b.batch.DeleteRange(logKey(ix.id, from), logKey(ix.id, before), nil))
}

// CutLog drops the entries before a position, durably and at once, and writes what is given:
// entries that stay, or that come in the place of some that were dropped, and where listeners
// stand.
func (ix *Indexer) CutLog(before uint64, entries []LogEntry, cursors map[string][]byte) error {
	b := ix.db.NewBatch()
	if before > 0 {
		b.TrimLog(ix, 0, before)
	}
	for _, e := range entries {
		b.AppendLog(ix, e)
	}
	for listener, cursor := range cursors {
		b.SetCursor(ix, listener, cursor)
	}
	return b.Commit()
}

// SetCursor writes where a listener stands.
func (b *Batch) SetCursor(ix *Indexer, listener string, cursor []byte) {
	b.put(append(prefix(spaceCursor, ix.id), listener...), cursor)
}

// SinkPosition reads where a sink's log is to be read from to see what it holds that the state does
// not know of; nil for nothing saved.
func (db *DB) SinkPosition(sink string) ([]byte, error) {
	return db.get(append([]byte{spaceSink}, sink...))
}

// SetSinkPosition writes it. Its bytes are the sink's matter.
func (b *Batch) SetSinkPosition(sink string, position []byte) {
	b.put(append([]byte{spaceSink}, sink...), position)
}

// SinkRecalled reads what SetSinkRecalled wrote, nil for nothing.
func (db *DB) SinkRecalled(sink string) ([]byte, error) { return db.get(recalledKey(sink)) }

// SetSinkRecalled writes what the sink holds before its position and the state may not know of;
// empty for nothing. Its bytes are the publisher's matter.
func (b *Batch) SetSinkRecalled(sink string, ids []byte) {
	if len(ids) == 0 {
		b.fail(b.batch.Delete(recalledKey(sink), nil))
		return
	}
	b.put(recalledKey(sink), ids)
}

// recalledKey is no other sink's position: no name of a sink holds a zero byte.
func recalledKey(sink string) []byte { return append([]byte{spaceSink}, sink+"\x00recalled"...) }

// Cursors reads where the listeners stood at the last commit.
func (ix *Indexer) Cursors() (map[string][]byte, error) {
	it, err := ix.iterator(spaceCursor)
	if err != nil {
		return nil, err
	}
	cursors := map[string][]byte{}
	for it.First(); it.Valid(); it.Next() {
		cursors[string(it.Key()[len(prefix(spaceCursor, 0)):])] = append([]byte{}, it.Value()...)
	}
	return cursors, wrap(errors.Join(it.Error(), it.Close()))
}

// LogBounds gives the position of the first entry on disk and the one behind the last; both 0 when
// there is none.
func (ix *Indexer) LogBounds() (first, next uint64, err error) {
	it, err := ix.iterator(spaceLog)
	if err != nil {
		return 0, 0, err
	}
	if it.First() {
		first = positionOf(it)
	}
	if it.Last() {
		next = positionOf(it) + 1
	}
	return first, next, wrap(errors.Join(it.Error(), it.Close()))
}

// Log yields the entries from one position up to, and without, another. An entry's data is valid
// until the next.
func (ix *Indexer) Log(from, to uint64) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		it, err := ix.db.pebble.NewIter(&pebble.IterOptions{
			LowerBound: logKey(ix.id, from),
			UpperBound: logKey(ix.id, to),
		})
		if err != nil {
			yield(LogEntry{}, wrap(err))
			return
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			if !yield(LogEntry{Position: positionOf(it), Data: it.Value()}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(LogEntry{}, wrap(err))
		}
	}
}

func positionOf(it *pebble.Iterator) uint64 {
	return binary.BigEndian.Uint64(it.Key()[len(prefix(spaceLog, 0)):])
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("state database: %w", err)
}
