package informer

import (
	"context"
	"sync"

	"github.com/kubebridge/bridge/internal/store"
)

// readBytes bounds what a listener reads back from disk at once.
const readBytes = 4 << 20

// diskLog is the part of a change log that lies on disk: changes that waited too long, in their order, one copy for all listeners. It
// is written with the commits of the checkpoint, and dropped behind the slowest listener.
type diskLog struct {
	informer *Informer
	metrics  *metrics
	max      int64 // bytes; negative when nothing goes there for having waited
	// turns has a place for each listener: one that reads takes one, who drops takes all.
	turns chan struct{}

	mu     sync.Mutex
	first  uint64  // position of the first entry that may be there
	next   uint64  // position behind the last
	there  uint64  // position behind the last that was committed
	stacks []stack // what was written together, oldest first
	bytes  int64   // of all stacks
}

// stack is entries that were written together.
type stack struct {
	end   uint64 // position behind its last entry
	bytes int64
}

// openDiskLog finds what a run before has left.
func openDiskLog(i *Informer, max int64) (*diskLog, error) {
	d := &diskLog{informer: i, metrics: i.metrics, max: max, turns: make(chan struct{}, len(i.listeners))}
	first, next, err := i.cfg.Indexer.LogBounds()
	if err != nil {
		return nil, err
	}
	d.first, d.next, d.there = first, next, next
	for e, err := range i.cfg.Indexer.Log(first, next) {
		if err != nil {
			return nil, err
		}
		d.addLocked(e.Position+1, int64(len(e.Data)))
	}
	return d, nil
}

// addLocked notes entries up to a position; of a run before without the lock, since nobody else is there yet.
func (d *diskLog) addLocked(end uint64, bytes int64) {
	d.bytes += bytes
	d.next = max(d.next, end)
	if n := len(d.stacks); n > 0 && d.stacks[n-1].bytes < d.mergeBelow() {
		d.stacks[n-1] = stack{end, d.stacks[n-1].bytes + bytes}
	} else {
		d.stacks = append(d.stacks, stack{end, bytes})
	}
	d.metrics.diskBytes.Set(float64(d.bytes))
}

// mergeBelow is the size of a stack that takes no more: a stack for each MiB is fine enough to account by, and to drop.
func (d *diskLog) mergeBelow() int64 { return max(min(d.max/16, 1<<20), 1) }

// oldest is the position behind the stacks that have to go to make room, at most 16 MiB of it; ok is false when there is room.
func (d *diskLog) oldest() (before uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes < d.max {
		return 0, false
	}
	left := d.bytes
	for _, s := range d.stacks {
		left -= s.bytes
		before = s.end
		if left <= d.max-min(d.max/16, 16<<20) {
			break
		}
	}
	return before, before > 0
}

// cut notes that what was before a position was dropped, but for what is left of it: from first on, and before itself for nothing. That
// counts for nothing: no bound is too small for it.
func (d *diskLog) cut(before, first uint64) {
	d.trimmed(before)
	if first >= before {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = first
	d.stacks = append([]stack{{end: before}}, d.stacks...)
}

// added notes entries that are part of the next commit.
func (d *diskLog) added(entries []store.LogEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var bytes int64
	for _, e := range entries {
		bytes += int64(len(e.Data))
	}
	if len(d.stacks) == 0 {
		d.first = entries[0].Position
	}
	d.addLocked(entries[len(entries)-1].Position+1, bytes)
}

// trimmed notes that what is before a position is gone.
func (d *diskLog) trimmed(before uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = max(d.first, before)
	for len(d.stacks) > 0 && d.stacks[0].end <= before {
		d.bytes -= d.stacks[0].bytes
		d.stacks = d.stacks[1:]
	}
	d.metrics.diskBytes.Set(float64(d.bytes))
}

// inUse says whether something is there; full, whether there is no room for more.
func (d *diskLog) inUse() (inUse, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.stacks) > 0, d.bytes >= d.max
}

// off says that changes do not go to disk for having waited.
func (d *diskLog) off() bool { return d.max < 0 }

// trimTo are the positions to trim between, when low is the first that is not settled by all; ok is false when that would drop nothing.
func (d *diskLog) trimTo(low uint64) (from, before uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before = min(low, d.next)
	return d.first, before, len(d.stacks) > 0 && before > d.first
}

// writtenWith is the position behind the last entry that is there when a commit has written entries. What was handed to disk since is not yet in any
// commit: were it trimmed now, it would be written behind that.
func (d *diskLog) writtenWith(entries []store.LogEntry) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(entries); n > 0 {
		return max(d.there, entries[n-1].Position+1)
	}
	return d.there
}

// wrote notes that entries were committed.
func (d *diskLog) wrote(entries []store.LogEntry) {
	there := d.writtenWith(entries)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.there = there
}

func (d *diskLog) size() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes
}

// read gives up to n changes from one position to another that are for an audience, and the position behind the last it looked at.
func (d *diskLog) read(from, to uint64, audience uint64, n int) ([]*change, uint64, error) {
	var changes []*change
	bytes := 0
	for e, err := range d.informer.cfg.Indexer.Log(from, to) {
		if err != nil {
			return nil, from, err
		}
		if len(changes) == n || bytes >= readBytes {
			return changes, e.Position, nil
		}
		c, err := d.informer.decode(e.Position, e.Data)
		if err != nil {
			return nil, from, err
		}
		if c.audience&audience != 0 {
			changes = append(changes, c)
			bytes += len(e.Data)
		}
	}
	return changes, to, nil
}

// sight tells of some changes from one position to another that are for an audience, and of the position behind the last that it looked at.
// It does not read their objects.
func (d *diskLog) sight(from, to, audience uint64) ([]sighting, uint64, error) {
	var found []sighting
	for e, err := range d.informer.cfg.Indexer.Log(from, to) {
		if err != nil {
			return nil, from, err
		}
		if len(found) == readSize {
			return found, e.Position, nil
		}
		r, _, err := decodeHeader(e.Position, e.Data)
		if err != nil {
			return nil, from, err
		}
		if d.informer.audienceOf(&r)&audience != 0 {
			found = append(found, sighting{position: e.Position, kind: r.Kind, key: r.Key, op: r.Op, uid: r.UID, observed: r.Observed})
		}
	}
	return found, to, nil
}

// readFor is read for a listener, which is told of the outcome before what it read can be dropped.
func (d *diskLog) readFor(ctx context.Context, from, to, audience uint64, n int, r reader) ([]*change, uint64, error) {
	if err := d.takeTurns(ctx, 1); err != nil {
		return nil, from, err
	}
	defer d.giveTurns(1)
	changes, next, err := d.read(from, to, audience, n)
	if err == nil {
		r.moved(changes, next)
	}
	return changes, next, err
}

func (d *diskLog) takeTurns(ctx context.Context, n int) error {
	for taken := range n {
		select {
		case d.turns <- struct{}{}:
		case <-ctx.Done():
			d.giveTurns(taken)
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *diskLog) giveTurns(n int) {
	for range n {
		<-d.turns
	}
}

// at gives the changes at positions that are for an audience; those that are gone are left out.
func (d *diskLog) at(positions []uint64, audience uint64) ([]*change, error) {
	var changes []*change
	for _, p := range positions {
		found, _, err := d.read(p, p+1, audience, 1)
		if err != nil {
			return nil, err
		}
		changes = append(changes, found...)
	}
	return changes, nil
}
