package changelog

import (
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
)

// Status of a log.
type Status struct {
	// Watermark that was committed: a restart resumes there.
	Watermark resource.Version
	// Unsettled entries, and settled states that wait for the next commit.
	Unsettled, Uncommitted int
	// Entries in memory that are not acked by all, and their Bytes, of at most Capacity.
	Entries, Bytes, Capacity int
	// DiskBytes of the part on disk, of at most DiskCapacity, which is 0 when nothing goes there.
	DiskBytes, DiskCapacity int64
	// DiskFull is set when nothing more goes to disk, so that Room waits.
	DiskFull bool
}

// Status is how full the log is, and how far it is committed.
func (l *Log) Status() Status {
	blocked := l.blocked()
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{
		Watermark: l.watermark, Unsettled: l.marks.Open(), Uncommitted: l.states.Ready(),
		Entries: l.memory.count, Bytes: l.memory.bytes, Capacity: l.cfg.MemoryBytes,
		DiskBytes: l.disk.bytes, DiskCapacity: max(0, l.cfg.SpoolBytes),
		DiskFull: blocked && l.disk.inUse(),
	}
}

// Reach says that every change up to a version is in the log before a position.
type Reach struct {
	Version resource.Version
	Next    Position
}

// Delivered is how far the listeners are.
type Delivered struct {
	// Settled is what all of them have acked, or has its place on disk.
	Settled Reach
	// End is what is in the log.
	End Reach
	// Lows are by listener: it has acked everything before. Lowest is the lowest of them.
	Lows   []Position
	Lowest Position
	// Low is Lowest; but unless cursors count, what is settled is acked: then it is the end.
	Low Position
	// Newest is the newest version that anything in the log is of, but for items of a list that has
	// not ended.
	Newest resource.Version
	// Front is set when all of them have acked everything, and Settled says so of all but Front.
	Front *Front
}

// Delivered returns how far the listeners are.
func (l *Log) Delivered() Delivered {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.memory.next
	d := Delivered{Settled: Reach{l.watermark, next}, End: l.end, Lowest: next, Low: next}
	for _, c := range l.cursors {
		low := c.lowLocked()
		d.Lows, d.Lowest = append(d.Lows, low), min(d.Lowest, low)
	}
	if l.cursorsCountLocked() {
		d.Low = d.Lowest
	}
	d.Newest = l.marks.Newest()
	isAcked := l.placed == 0 && l.marks.Open() == 0 && d.Low == next
	if isAcked && l.watermark == l.marks.Version() && l.front.Version != "" && !l.front.isPartial {
		d.Front = &Front{l.front.Version, slices.Clone(l.front.Objects)}
	}
	return d
}
