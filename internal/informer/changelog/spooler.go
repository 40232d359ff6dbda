package changelog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// errDiskFull is logged while a full disk budget, or a disk that is nearly full, stops the reading.
var errDiskFull = errors.New("there is no room left for the log on disk")

// sharedBytes is how much of several logs goes to disk with one commit, plus one more log.
const sharedBytes = 16 << 20

// Spooler spools, in all logs of a bridge, the entries that are pending for too long. So the
// watermarks continue while a sink is unavailable, and a restart finds everything on disk. With "*"
// there are hundreds of logs, and most have nothing to spool for hours: so one goroutine serves
// all, and visits only the logs that have something. One commit writes the old entries of several
// logs.
type Spooler struct {
	after time.Duration
	added chan struct{} // of one slot: there is a log to look after
	now   chan struct{} // of one slot: spool without waiting

	mu   sync.Mutex
	logs []*Log // guarded by mu: may have entries that are neither settled nor on disk
}

// NewSpooler makes a Spooler of logs that share one Committer. after is how long an entry may wait
// for its listeners before it is written to disk; 0 for 5 s.
func NewSpooler(after time.Duration) *Spooler {
	return &Spooler{
		after: cmp.Or(after, 5*time.Second), added: make(chan struct{}, 1), now: make(chan struct{}, 1),
	}
}

// SpoolNow makes Run spool everything that is pending now, and returns at once.
func (s *Spooler) SpoolNow() {
	select {
	case s.now <- struct{}{}:
	default: // it is about to
	}
}

// Run spools until ctx ends. It sleeps while no log has anything to spool.
func (s *Spooler) Run(ctx context.Context) error {
	every := min(s.after/4, time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if len(s.watched()) == 0 {
			tick.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-s.added:
			}
			tick.Reset(every)
		}
		after := s.after
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.now:
			after = 0
		}
		s.spool(time.Now().Add(-after))
	}
}

// spool spools the entries that were observed by a time. A log that may not go to disk, or that
// another goroutine spools, waits for the next call; it does not hold up the others.
func (s *Spooler) spool(by time.Time) {
	var staged []*Log
	bytes := 0
	for _, l := range s.watched() {
		oldest := l.oldestUnspooled()
		if oldest.IsZero() {
			s.forget(l)
		}
		if oldest.IsZero() || oldest.After(by) || !l.maySpool() || !s.begin(l) {
			continue
		}
		n, err := l.stageOrDrop(by)
		if err != nil {
			l.reportSpooling(err)
			l.spooling.Release(1)
			continue
		}
		staged = append(staged, l)
		if bytes += n; bytes >= sharedBytes {
			s.commit(staged)
			staged, bytes = nil, 0
		}
	}
	s.commit(staged)
}

// commit commits the staged entries of some logs, and releases the logs.
func (s *Spooler) commit(staged []*Log) {
	if len(staged) == 0 {
		return
	}
	err := staged[0].Commit()
	for _, l := range staged {
		if err == nil {
			l.halve()
		}
		l.reportSpooling(err)
		l.spooling.Release(1)
	}
}

func (s *Spooler) watched() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logs)
}

// watch adds a log that has something to spool.
func (s *Spooler) watch(l *Log) {
	if l.watched.Load() {
		return
	}
	s.mu.Lock()
	if !l.watched.Load() {
		l.watched.Store(true)
		s.logs = append(s.logs, l)
	}
	s.mu.Unlock()
	select {
	case s.added <- struct{}{}:
	default: // it is awake
	}
}

// forget ends watch, unless an entry was appended since: an Append after this check finds the log
// unwatched.
func (s *Spooler) forget(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.watched.Store(false)
	if !l.oldestUnspooled().IsZero() {
		l.watched.Store(true)
		return
	}
	s.logs = slices.DeleteFunc(s.logs, func(other *Log) bool { return other == l })
}

// begin acquires a log for spooling, if no other goroutine has it and EndSpooling was not called.
// The log is released when its commit has ended.
func (s *Spooler) begin(l *Log) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.logs, l) && l.spooling.TryAcquire(1)
}

// end forgets a log, and returns when the Spooler is done with it.
func (s *Spooler) end(l *Log) {
	s.mu.Lock()
	s.logs = slices.DeleteFunc(s.logs, func(other *Log) bool { return other == l })
	s.mu.Unlock()
	_ = l.spooling.Acquire(context.Background(), 1) // it has no end
	l.spooling.Release(1)
}

// spoolsOld reports whether entries go to disk when they have waited for too long.
func (l *Log) spoolsOld() bool { return l.cfg.Spooler != nil && l.cfg.SpoolBytes >= 0 }

// IsKept reports whether a restart finds an entry wherever it finds those before it: on disk, or
// nowhere. The next commit is included.
func (c *Cursor) IsKept(at Position) bool {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.memory.find(at)
	return e == nil || e.spooled || !l.spoolsOld() && !l.disk.inUse()
}

// EndSpooling stops the Spooler for this log, and returns when it has stopped.
func (l *Log) EndSpooling() {
	if l.spoolsOld() {
		l.cfg.Spooler.end(l)
	}
}

// maySpool reports whether entries may go to disk, by the space that is free now. A refusal is
// logged once.
func (l *Log) maySpool() bool {
	l.lookAtDisk()
	blocked := l.blocked()
	if blocked && !l.blockedLogged {
		l.cfg.Log.Error("reading stops until a sink has taken something, or space is freed",
			"err", errDiskFull, "bytes", l.Status().DiskBytes)
	}
	l.blockedLogged = blocked
	return !blocked
}

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

// Status returns how full the log is, and how far it is committed.
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

// VersionReached says that every change up to Version is in the log before the position Next.
type VersionReached struct {
	Version resource.Version
	Next    Position
}

// Delivered says how far the listeners are.
type Delivered struct {
	// Settled is what all listeners have acked, or what lies on disk.
	Settled VersionReached
	// End is what is in the log.
	End VersionReached
	// Lows has, by listener, the position before which it has acked everything. Lowest is the
	// lowest of them.
	Lows   []Position
	Lowest Position
	// Low is Lowest. But where the cursors do not count, settled entries are acked, and Low is the
	// end.
	Low Position
	// Newest is the newest version of anything in the log, except for items of a list that has not
	// ended.
	Newest resource.Version
	// NewestVersion is set when all listeners have acked everything, and Settled covers all but it.
	NewestVersion *NewestVersion
}

// Delivered returns how far the listeners are.
func (l *Log) Delivered() Delivered {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.memory.next
	d := Delivered{Settled: VersionReached{l.watermark, next}, End: l.end, Lowest: next, Low: next}
	for _, c := range l.cursors {
		low := c.lowLocked()
		d.Lows, d.Lowest = append(d.Lows, low), min(d.Lowest, low)
	}
	if l.cursorsCountLocked() {
		d.Low = d.Lowest
	}
	d.Newest = l.marks.Newest()
	isAcked := l.unappended == 0 && l.marks.Open() == 0 && d.Low == next
	if isAcked && l.watermark == l.marks.Version() && l.newest.Version != "" && !l.newest.isPartial {
		d.NewestVersion = &NewestVersion{l.newest.Version, slices.Clone(l.newest.Objects)}
	}
	return d
}
