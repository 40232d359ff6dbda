package store

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Log reads the part of a unit's change log that lies on disk, and reports whether it can grow.
// Only the informer knows the meaning of an entry and of a cursor.
type Log struct {
	db *DB
	id uint32
}

// Available reports whether commits can be made: what can't be committed stays in memory.
func (l Log) Available() bool { return l.db.state.Unavailable() == nil }

// Room reports whether the unit may spool more changes when it has spooled some bytes; see
// statedb.DB.Room.
func (l Log) Room(used int64) bool { return l.db.state.Room(used) }

// Look checks the disk again where there is no Room; see statedb.DB.Look.
func (l Log) Look(used int64) { l.db.state.Look(used) }

// WaitAvailable waits until commits can be made, or until ctx ends.
func (l Log) WaitAvailable(ctx context.Context) error { return l.db.state.WaitAvailable(ctx) }

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
	b.Fail(b.batch.DeleteRange(logKey(ix.id, from), logKey(ix.id, before), nil))
}

// SetCursor writes the cursor of a listener.
func (b *Batch) SetCursor(ix *Indexer, listener string, cursor []byte) {
	b.put(append(prefix(spaceCursor, ix.id), listener...), cursor)
}

// SinkPosition reads where a sink's log is to be read from to see what it holds that the state does
// not know of; nil for nothing saved.
func (db *DB) SinkPosition(sink string) ([]byte, error) {
	return db.state.Get(append([]byte{spaceSink}, sink...))
}

// SetSinkPosition writes it. Its bytes are the sink's matter.
func (b *Batch) SetSinkPosition(sink string, position []byte) {
	b.put(append([]byte{spaceSink}, sink...), position)
}

// SinkReadBack reads what SetSinkRecalled wrote, nil for nothing.
func (db *DB) SinkReadBack(sink string) ([]byte, error) { return db.state.Get(readBackKey(sink)) }

// SetSinkReadBack writes what the sink holds before its position and the state may not know of;
// empty for nothing. Its bytes are the publisher's matter.
func (b *Batch) SetSinkReadBack(sink string, ids []byte) {
	if len(ids) == 0 {
		b.Fail(b.batch.Delete(readBackKey(sink), nil))
		return
	}
	b.put(readBackKey(sink), ids)
}

// Clock reads what SetClock wrote, nil for nothing.
func (db *DB) Clock() ([]byte, error) { return db.state.Get([]byte{spaceClock}) }

// SetClock writes the newest ticks of the version clock. Its bytes are the clock's matter.
func (db *DB) SetClock(ticks []byte) error {
	b := db.NewBatch()
	b.put([]byte{spaceClock}, ticks)
	return b.Commit()
}

// readBackKey is no other sink's position: no name of a sink holds a zero byte.
func readBackKey(sink string) []byte { return append([]byte{spaceSink}, sink+"\x00recalled"...) }

// Cursors reads where the listeners stood at the last commit.
func (l Log) Cursors() (map[string][]byte, error) {
	it, err := l.db.iterator(l.id, spaceCursor, "")
	if err != nil {
		return nil, err
	}
	cursors := map[string][]byte{}
	for it.First(); it.Valid(); it.Next() {
		cursors[string(it.Key()[len(prefix(spaceCursor, 0)):])] = append([]byte{}, it.Value()...)
	}
	return cursors, statedb.Wrap(errors.Join(it.Error(), it.Close()))
}

// Bounds gives the position of the first entry on disk and the one behind the last; both 0 when
// there is none.
func (l Log) Bounds() (first, next uint64, err error) {
	it, err := l.db.iterator(l.id, spaceLog, "")
	if err != nil {
		return 0, 0, err
	}
	if it.First() {
		first = positionOf(it)
	}
	if it.Last() {
		next = positionOf(it) + 1
	}
	return first, next, statedb.Wrap(errors.Join(it.Error(), it.Close()))
}

// Entries yields the entries from one position up to, and without, another. An entry's data is
// valid until the next.
func (l Log) Entries(from, to uint64) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		it, err := l.db.pebble.NewIter(&pebble.IterOptions{
			LowerBound: logKey(l.id, from),
			UpperBound: logKey(l.id, to),
		})
		if err != nil {
			yield(LogEntry{}, statedb.Wrap(err))
			return
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			if !yield(LogEntry{Position: positionOf(it), Data: it.Value()}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(LogEntry{}, statedb.Wrap(err))
		}
	}
}

func positionOf(it *pebble.Iterator) uint64 {
	return binary.BigEndian.Uint64(it.Key()[len(prefix(spaceLog, 0)):])
}
