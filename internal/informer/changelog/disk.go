package changelog

import (
	"github.com/kubebridge/bridge/internal/store"
)

// readBytes bounds what a listener reads back from disk at once.
const readBytes = 4 << 20

// headersAtOnce is how many headers are read at once.
const headersAtOnce = 256

// disk accounts for the part of the log on disk: entries that waited too long, in their order, one
// copy for all listeners. The commits write it, and trim it behind the slowest listener.
type disk struct {
	max     int64       // bytes; negative when nothing goes there for having waited
	first   Position    // of the first entry that may be there
	next    Position    // behind the last
	batches []diskBatch // what was written together, oldest first
	bytes   int64       // of all stacks
	gauge   interface{ Set(bytes float64) }
}

// diskBatch is entries that were written together.
type diskBatch struct {
	end   Position // behind its last entry
	bytes int64
}

// openDisk finds the entries that an earlier run has left.
func (l *Log) openDisk() error {
	first, next, err := l.cfg.Indexer.Log().Bounds()
	if err != nil {
		return err
	}
	l.disk = disk{
		max: l.cfg.SpoolBytes, gauge: l.metrics.diskBytes,
		first: Position(first), next: Position(next),
	}
	for e, err := range l.cfg.Indexer.Log().Entries(first, next) {
		if err != nil {
			return err
		}
		l.disk.extendTo(Position(e.Position)+1, int64(len(e.Data)))
	}
	return nil
}

// extendTo adds entries up to a position.
func (d *disk) extendTo(end Position, bytes int64) {
	d.bytes += bytes
	d.next = max(d.next, end)
	// A stack for each MiB is fine enough to account by, and to drop.
	mergeBelow := max(min(d.max/16, 1<<20), 1)
	if n := len(d.batches); n > 0 && d.batches[n-1].bytes < mergeBelow {
		d.batches[n-1] = diskBatch{end, d.batches[n-1].bytes + bytes}
	} else {
		d.batches = append(d.batches, diskBatch{end, bytes})
	}
	d.gauge.Set(float64(d.bytes))
}

// added adds entries that are part of the next commit.
func (d *disk) added(entries []store.LogEntry) {
	var bytes int64
	for _, e := range entries {
		bytes += int64(len(e.Data))
	}
	if len(d.batches) == 0 {
		d.first = Position(entries[0].Position)
	}
	d.extendTo(Position(entries[len(entries)-1].Position)+1, bytes)
}

// oldest returns the position behind the batches that have to go to make room, at most 16 MiB of
// it; ok is false when there is room.
func (d *disk) oldest() (before Position, ok bool) {
	if !d.full() {
		return 0, false
	}
	left := d.bytes
	for _, s := range d.batches {
		left -= s.bytes
		before = s.end
		if left <= d.max-min(d.max/16, 16<<20) {
			break
		}
	}
	return before, before > 0
}

// trimmed removes everything before a position from the account.
func (d *disk) trimmed(before Position) {
	d.first = max(d.first, before)
	for len(d.batches) > 0 && d.batches[0].end <= before {
		d.bytes -= d.batches[0].bytes
		d.batches = d.batches[1:]
	}
	d.gauge.Set(float64(d.bytes))
}

// inUse reports whether entries lie on disk.
func (d *disk) inUse() bool { return len(d.batches) > 0 }

// full reports whether there is no room for more.
func (d *disk) full() bool { return d.bytes >= d.max }

// trimTo returns the positions to trim between, when low is the first that not all have acked; ok
// is false when nothing would be trimmed.
func (d *disk) trimTo(low Position) (from, before Position, ok bool) {
	before = min(low, d.next)
	return d.first, before, d.inUse() && before > d.first
}

// readDisk returns up to n entries from one position to another that are for a listener, and the
// position behind the last one examined.
func (l *Log) readDisk(from, to Position, bit Listeners, n int) ([]*Entry, Position, error) {
	var entries []*Entry
	bytes := 0
	for e, err := range l.cfg.Indexer.Log().Entries(uint64(from), uint64(to)) {
		if err != nil {
			return nil, from, err
		}
		if len(entries) == n || bytes >= readBytes {
			return entries, Position(e.Position), nil
		}
		entry, err := l.decode(Position(e.Position), e.Data)
		if err != nil {
			return nil, from, err
		}
		if entry.For&bit != 0 {
			entries = append(entries, entry)
			bytes += len(e.Data)
		}
	}
	return entries, to, nil
}

// diskHeaders describes some entries from one position to another that are for a listener, and
// returns the position behind the last one examined. It does not read their objects.
func (l *Log) diskHeaders(from, to Position, bit Listeners) ([]Header, Position, error) {
	var found []Header
	for e, err := range l.cfg.Indexer.Log().Entries(uint64(from), uint64(to)) {
		if err != nil {
			return nil, from, err
		}
		if len(found) == headersAtOnce {
			return found, Position(e.Position), nil
		}
		r, _, err := decodeHeader(Position(e.Position), e.Data)
		if err != nil {
			return nil, from, err
		}
		if l.ListenersOf(r.For)&bit != 0 {
			r.Position = Position(e.Position)
			found = append(found, r.Header())
		}
	}
	return found, to, nil
}
