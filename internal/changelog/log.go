package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/budget"
	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/handover"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// ErrEnd is returned by Cursor.Read when the log was closed and the cursor is behind its last
// entry.
var ErrEnd = errors.New("end of the change log")

// Committer makes durable what the logs have settled: *checkpoint.Committer.
type Committer interface {
	// Commit writes what is settled now, of all logs. When it returns nil that is durable.
	Commit() error
	// Changed says that there is something to commit. It does not block.
	Changed()
	// Wake has a commit come early. It does not block.
	Wake()
}

// Config of a Log. Zero values mean the documented default.
type Config struct {
	// Indexer has the part on disk, and the saved position.
	Indexer   *store.Indexer
	Type      resource.Type
	Committer Committer
	// Listeners by name, at most 64. The n-th has the n-th cursor, and the bit 1<<n.
	Listeners []string
	// MemoryBytes is how much the log holds in memory; default 16 MiB.
	MemoryBytes int
	// Account bounds the log's memory together with that of others; nil for MemoryBytes alone.
	Account *budget.Account
	// Spooler writes to disk what has waited for its listeners; nil: nothing goes there for that.
	Spooler *Spooler
	// SpoolBytes is how much the log may hold on disk; default 10 GiB. When that is reached, Room
	// waits. Negative: nothing goes to disk for having waited, and Room waits when memory is full.
	SpoolBytes int64
	// DropOldest drops the oldest on disk when SpoolBytes is reached.
	DropOldest bool
	Log        *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// Log is the changes of one informer that are not acked by all. The newest part is in memory; what
// is before it lies on disk. All methods may be called concurrently.
type Log struct {
	cfg      Config
	everyone Listeners
	cursors  []*Cursor
	metrics  *metrics
	spooling *semaphore.Weighted // of 1: whoever has it spools, or drops
	watched  atomic.Bool         // the Spooler looks after it
	told     bool                // that nothing may go to disk; owned by the Spooler's Run

	mu     sync.Mutex // guards all below, and of entries and cursors what they say
	cond   *sync.Cond // signalled when something changes that somebody waits for
	marks  *Watermark
	states *States
	memory memory
	disk   disk
	drop   drop
	placed int   // entries that are placed, and not appended
	end    Reach // when that was 0
	uncommitted
	closed bool
}

// memory is the newest part of the log.
type memory struct {
	// entries are in order of their positions. Those that all have acked (size 0) go when they are
	// at the front, or when they are most of it: one that is not acked must not keep all later
	// ones.
	entries []*Entry
	base    Position // from which on everything that is not acked is in memory
	next    Position // of the next entry
	bytes   int
	count   int // of entries that are not acked
}

// Open finds what a run before has left on disk.
func Open(cfg Config) (*Log, error) {
	cfg.MemoryBytes = cmp.Or(cfg.MemoryBytes, 16<<20)
	cfg.SpoolBytes = cmp.Or(cfg.SpoolBytes, 10<<30)
	position, err := cfg.Indexer.Meta().Position()
	if err != nil {
		return nil, err
	}
	l := &Log{
		cfg: cfg, metrics: newMetrics(&cfg), spooling: semaphore.NewWeighted(1),
		marks: New(position.Version), states: NewStates(),
		uncommitted: uncommitted{watermark: position.Version, epoch: position.Epoch},
	}
	l.cond = sync.NewCond(&l.mu)
	for n, name := range cfg.Listeners {
		l.cursors = append(l.cursors, &Cursor{
			log: l, name: name, bit: 1 << n, spot: handover.New(),
		})
		l.everyone |= 1 << n
	}
	if err := l.openDisk(); err != nil {
		return nil, err
	}
	if err := l.restore(); err != nil {
		return nil, err
	}
	l.memory.base, l.memory.next = l.disk.next, l.disk.next
	l.lookAtEndLocked()
	return l, nil
}

// Cursor is that of the n-th listener.
func (l *Log) Cursor(n int) *Cursor { return l.cursors[n] }

// Place takes what was decided of one delta. It gives the entries their places in the order of
// decision, and puts the delta's mark behind them. An entry without listeners is settled by that.
// Append follows for all others.
func (l *Log) Place(entries []*Entry, m Mark) {
	l.mu.Lock()
	before := l.states.Ready()
	for _, e := range entries {
		l.placeLocked(e)
	}
	if m.Kind != NoMark {
		l.marks.Mark(m.Kind, m.Version)
		l.lookAtEndLocked()
	}
	l.unlockAndWake(before)
	l.cfg.Committer.Changed()
}

func (l *Log) placeLocked(e *Entry) {
	e.place = l.marks.Append()
	if key := e.stateKey(); key != "" {
		l.states.Append(key, e.place)
	}
	if e.waiting = e.For.count(); e.waiting == 0 {
		l.settleLocked(e)
	} else {
		l.placed++
	}
}

// settleLocked settles an entry, and has its state committed.
func (l *Log) settleLocked(e *Entry) {
	if key := e.stateKey(); key != "" {
		l.states.Settle(key, e.place, e.State())
	}
	l.marks.Settle(e.place)
}

// enough is how many states to be committed have a commit come early.
const enough = 1000

// unlockAndWake ends what may have settled entries. before is how many states were ready before it.
func (l *Log) unlockAndWake(before int) {
	after := l.states.Ready()
	l.mu.Unlock()
	if before < enough && after >= enough {
		l.cfg.Committer.Wake()
	}
}

// Append puts entries at the end, for the listeners to read. The caller has seen to it that there
// is Room; a batch may pass the bound by its own size. Offer has to follow, once the caller holds
// no lock.
func (l *Log) Append(entries []*Entry) {
	l.append(entries)
	if l.spoolsOld() {
		l.cfg.Spooler.watch(l)
	}
}

func (l *Log) append(entries []*Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.memory
	for _, e := range entries {
		e.Position, e.size = m.next, e.Size()
		m.next++
		m.entries = append(m.entries, e)
		m.bytes += e.size
		m.count++
	}
	l.placed -= len(entries)
	l.lookAtEndLocked()
	l.changedLocked()
}

// lookAtEndLocked notes up to which version everything is in the log, when nothing is decided and
// not in it.
func (l *Log) lookAtEndLocked() {
	if l.placed == 0 {
		l.end = Reach{l.marks.Marked(), l.memory.next}
	}
}

// Offer lets the listeners read that have parked: their steps run here.
func (l *Log) Offer() {
	for _, c := range l.cursors {
		c.spot.Offer()
	}
}

// Close says that no entry will be appended.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.cond.Broadcast()
	l.mu.Unlock()
	l.Offer()
}

// HasRoom reports whether Room would return at once.
func (l *Log) HasRoom() bool { return l.cfg.Indexer.Log().Available() && !l.full() }

// changedLocked informs whoever looks at what is in memory.
func (l *Log) changedLocked() {
	l.cfg.Account.Set(l.memory.bytes)
	l.metrics.bytes.Set(float64(l.memory.bytes))
	l.metrics.entries.Set(float64(l.memory.count))
	l.cond.Broadcast()
}

// waitRoom waits until there is room in memory, or enough reports that something else is to be
// done.
func (l *Log) waitRoom(ctx context.Context, enough func() bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return condition.Wait(ctx, l.cond, func() bool {
		return !l.fullLocked() || enough()
	})
}

// full reports whether there is no room in memory.
func (l *Log) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fullLocked()
}

func (l *Log) fullLocked() bool { return l.memory.bytes >= l.boundLocked() }

// boundLocked is how much the log may hold in memory now.
func (l *Log) boundLocked() int { return l.cfg.Account.Bound(l.cfg.MemoryBytes) }

// find gives the entry at a position, nil when it is not in memory, or acked by all.
func (m *memory) find(at Position) *Entry {
	if n := m.index(at); n < len(m.entries) && m.entries[n].Position == at && m.entries[n].size > 0 {
		return m.entries[n]
	}
	return nil
}

// index is the place of the first entry at or after a position.
func (m *memory) index(from Position) int {
	n, _ := slices.BinarySearchFunc(m.entries, from, func(e *Entry, at Position) int {
		return cmp.Compare(e.Position, at)
	})
	return n
}

// release takes an entry that all have acked out of the log.
func (m *memory) release(e *Entry) {
	m.leave(e)
	// Nobody reads it: don't keep the object while the entry waits to be dropped, nor its strings,
	// which share the object's memory.
	e.Change, e.Told = event.Change{}, ""
}

// leave takes an entry out of the account.
func (m *memory) leave(e *Entry) {
	m.bytes -= e.size
	m.count--
	e.size = 0
}

// trim drops entries that all have acked.
func (m *memory) trim() {
	if m.count == 0 {
		clear(m.entries)
		m.entries = m.entries[:0]
		return
	}
	front := 0
	for m.entries[front].size == 0 {
		m.entries[front] = nil
		front++
	}
	m.entries = m.entries[front:]
	if len(m.entries) > 1024 && m.count < len(m.entries)/2 {
		m.entries = slices.DeleteFunc(m.entries, func(e *Entry) bool { return e.size == 0 })
	}
}

// leaveFront takes entries out of memory from its front, as long as they lie on disk and while says
// so. Listeners that have not read them will read them from disk.
func (m *memory) leaveFront(while func(e *Entry) bool) {
	n := 0
	for ; n < len(m.entries) && while(m.entries[n]); n++ {
		e := m.entries[n]
		if e.size > 0 && !e.spooled {
			break
		}
		if e.size > 0 {
			m.leave(e)
		}
		m.base = e.Position + 1
		m.entries[n] = nil
	}
	m.entries = m.entries[n:]
}

// unspooled gives the first entry that is neither settled nor on disk, nil for none.
func (m *memory) unspooled() *Entry {
	for _, e := range m.entries {
		if e.size > 0 && !e.spooled {
			return e
		}
	}
	return nil
}

// Names are the listeners of a set; none for everyone.
func (l *Log) names(set Listeners) []string {
	if set&l.everyone == l.everyone {
		return nil
	}
	var names []string
	for _, c := range l.cursors {
		if set&c.bit != 0 {
			names = append(names, c.name)
		}
	}
	return names
}

// Set gives the listeners of sinks by name, everyone for no names; sinks that are not there any
// more are left out.
func (l *Log) Set(names []string) Listeners {
	if len(names) == 0 {
		return l.everyone
	}
	var set Listeners
	for _, c := range l.cursors {
		if slices.Contains(names, c.name) {
			set |= c.bit
		}
	}
	return set
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
	return d
}

// missing is the error about an entry that a cursor needs and that is nowhere.
func missing(at Position) error {
	return fmt.Errorf("entry %d is neither in memory nor on disk", at)
}
