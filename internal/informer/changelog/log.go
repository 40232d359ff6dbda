package changelog

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Committer makes durable what the logs have settled: *checkpoint.Committer.
type Committer interface {
	// Commit writes what is settled now, of all logs. When it returns nil that is durable.
	Commit() error
	// Changed reports that there is something to commit. It does not block.
	Changed()
	// Wake makes the next commit come early. It does not block.
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
	Account *ratelimit.Account
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

// Log holds the changes of one informer that not all listeners have acked. The newest part is in
// memory, the part before it on disk. All methods may be called concurrently.
type Log struct {
	cfg           Config
	everyone      Listeners
	cursors       []*Cursor
	metrics       *metrics
	spooling      *semaphore.Weighted // of 1: its holder spools, or drops
	watched       atomic.Bool         // by the Spooler
	blockedLogged bool                // that nothing may go to disk; owned by the Spooler's Run

	mu         sync.Mutex // guards all below, the state of entries, and cursors
	cond       *sync.Cond // signalled when something changes that somebody waits for
	marks      *Watermark
	newest     newestVersion
	states     *States
	memory     memory
	disk       disk
	drop       dropProgress
	unappended int            // entries that have a rank, and are not appended
	end        VersionReached // when that was 0
	nextCommit
	closed bool
}

// Open makes a log and finds what an earlier run has left on disk.
func Open(cfg Config) (*Log, error) {
	cfg.MemoryBytes = cmp.Or(cfg.MemoryBytes, 16<<20)
	cfg.SpoolBytes = cmp.Or(cfg.SpoolBytes, 10<<30)
	position, err := cfg.Indexer.Meta().Position()
	if err != nil {
		return nil, err
	}
	l := &Log{
		cfg: cfg, metrics: newMetrics(&cfg), spooling: semaphore.NewWeighted(1),
		marks: NewWatermark(position.Version), states: NewStates(),
		nextCommit: nextCommit{watermark: position.Version, epoch: position.Epoch},
	}
	l.cond = sync.NewCond(&l.mu)
	for n, name := range cfg.Listeners {
		l.cursors = append(l.cursors, &Cursor{
			log: l, name: name, bit: 1 << n, spot: ratelimit.NewSpot(),
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
	l.setEndLocked()
	return l, nil
}

// restore gives the cursors the positions that an earlier run has left on disk.
func (l *Log) restore() error {
	cursors, err := l.cfg.Indexer.Log().Cursors()
	if err != nil {
		return err
	}
	states := map[string]cursorState{}
	for name, saved := range cursors {
		s, err := decodeCursorState(saved)
		if err != nil {
			return fmt.Errorf("cursor: %w", err)
		}
		states[name] = s
		// New entries come behind every position that a listener may have.
		l.disk.next = max(l.disk.next, s.next)
	}
	for _, c := range l.cursors {
		c.next = l.disk.next // a new listener has nothing to catch up on
		if s, ok := states[c.name]; ok {
			l.report(c, &s, s.restart())
			c.next, c.tried, c.dropped = s.next, s.tried, s.dropped
			for _, at := range s.pending {
				c.pending.add(at, time.Time{})
			}
		}
	}
	return nil
}

// Cursor returns the cursor of the n-th listener.
func (l *Log) Cursor(n int) *Cursor { return l.cursors[n] }

// Rank takes the decisions about one delta. It gives the entries their rank in the order of
// decision, and puts the delta's mark behind them. An entry without listeners is settled by that.
// All others have to be appended next.
func (l *Log) Rank(entries []*Entry, m Mark) {
	l.mu.Lock()
	before := l.states.Ready()
	for _, e := range entries {
		l.rankLocked(e)
	}
	if m.Kind != NoMark {
		l.marks.Mark(m.Kind, m.Version)
		l.newest.recordObject(m, l.marks.Incomplete())
		l.setEndLocked()
	}
	l.unlockAndWake(before)
	l.cfg.Committer.Changed()
}

func (l *Log) rankLocked(e *Entry) {
	e.rank = l.marks.Append()
	if key := e.stateKey(); key != "" {
		l.states.Append(key, e.rank)
	}
	if e.waiting = e.For.count(); e.waiting == 0 {
		l.settleLocked(e)
	} else {
		l.unappended++
	}
}

// Append puts entries at the end, for the listeners to read. The caller has waited for Room; a
// batch may exceed the bound by its own size. Call Offer afterwards, with no lock held.
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
	l.unappended -= len(entries)
	l.setEndLocked()
	l.changedLocked()
}

// setEndLocked records up to which version everything is in the log. It does so only while no
// decided entry waits to be appended.
func (l *Log) setEndLocked() {
	if l.unappended == 0 {
		l.end = VersionReached{l.marks.Marked(), l.memory.next}
	}
}

// Close reports that no entry will be appended.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.cond.Broadcast()
	l.mu.Unlock()
	l.Offer()
}

// HasRoom reports whether Room would return at once.
func (l *Log) HasRoom() bool { return l.cfg.Indexer.Log().Available() && !l.full() }

// Redact takes what opts remove out of an informer's state on disk: the last known objects and the
// log. Nothing else may use the Indexer yet. After an error it can be repeated.
func Redact(ix *store.Indexer, opts resource.ParseOptions) error {
	again := func(raw []byte) ([]byte, error) {
		obj, err := resource.Parse(raw, opts)
		if err != nil {
			return nil, err
		}
		return obj.Raw, nil
	}
	return ix.Rewrite(again, func(entry []byte) ([]byte, error) { return rewrite(entry, again) })
}

// rewrite makes an entry of the log again, its objects changed by again.
func rewrite(entry []byte, again func([]byte) ([]byte, error)) ([]byte, error) {
	r, raw, old, err := split(0, entry)
	if err != nil || !r.HasObject && r.Unreadable == nil {
		return entry, err
	}
	if u := r.Unreadable; u != nil { // nobody knows where values lie in it
		u.Raw, u.Message, u.Withheld = nil, "", true
		return r.join(nil)
	}
	if raw, err = again(raw); err != nil {
		return nil, err
	}
	if r.OldBytes > 0 {
		if old, err = again(old); err != nil {
			return nil, fmt.Errorf("the object before: %w", err)
		}
	}
	r.OldBytes = len(old)
	return r.join(append(raw, old...))
}
