package checkpoint

import (
	"cmp"
	"sync"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Tracker follows one informer's stream from the pop to the commit. All methods may be called
// concurrently.
type Tracker struct {
	indexer *store.Indexer
	wake    func()       // tells the committer that enough waits
	every   int          // how many settled objects are enough
	commit  func() error // commits now

	mu        sync.Mutex
	journal   Journal // nil for none
	watermark *changelog.Watermark
	listed    bool // the end of a list was passed by a commit that failed
	settled   map[resource.Key]store.Settled
	spare     map[resource.Key]store.Settled // empty, for the next commit; nil for none
	spooled   []store.LogEntry               // changes that wait for their place in the log on disk
	notes     []note                         // that wait for their place, or for the next commit
	bodies    []store.Body                   // of objects that are behind
	committed resource.Version
	passed    bool // tombstones are left that committed has passed
}

// note is something that an informer writes with a commit.
type note struct {
	after changelog.Position
	write func(*store.Batch)
}

// Note has something written in the first commit that has everything settled that was appended so far;
// and again in the one after where a commit fails. write must not block, and may find that there is
// nothing to write any more.
func (t *Tracker) Note(write func(*store.Batch)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, note{t.watermark.Last(), write})
}

// NoteNext is Note for the next commit, whatever is settled.
func (t *Tracker) NoteNext(write func(*store.Batch)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, note{0, write})
}

// CatchUp has bodies of objects that are behind written in the next commit, where their versions
// are still those that are committed.
func (t *Tracker) CatchUp(bodies []store.Body) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bodies = append(t.bodies, bodies...)
}

// newTracker starts at a saved watermark, "" for none.
func (c *Committer) newTracker(ix *store.Indexer, from resource.Version) *Tracker {
	return &Tracker{
		indexer: ix, wake: c.wakeUp, every: c.cfg.Every, commit: c.Commit,
		watermark: changelog.New(from), committed: from, settled: map[resource.Key]store.Settled{},
	}
}

// Commit writes what is settled now, of this informer and all others. When it returns nil that is
// durable.
func (t *Tracker) Commit() error { return t.commit() }

// Append takes the next change, in stream order. It will be settled.
func (t *Tracker) Append() changelog.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watermark.Append()
}

// Mark notes a version of the stream, behind all changes that were appended so far.
func (t *Tracker) Mark(kind changelog.MarkKind, version resource.Version) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watermark.Mark(kind, version)
}

// Spooled is a change that goes to the log on disk instead of waiting for the sinks.
type Spooled struct {
	Position changelog.Position
	Entry    store.LogEntry
	// State that the change leaves of its object; nil for none.
	State *store.Settled
	Key   resource.Key
}

// Spool settles changes by writing them to the log on disk: entries and settled states are
// part of one commit. They are durable when a Commit that begins afterwards has returned nil.
func (t *Tracker) Spool(changes []Spooled) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		t.spooled = append(t.spooled, c.Entry)
		if c.State != nil {
			t.settleLocked(c.Key, *c.State)
		}
		t.watermark.Settle(c.Position)
	}
}

// Journal is what an informer adds to each commit: where its listeners stand in the log on disk.
type Journal interface {
	// Write puts it into the batch, in which the entries of the log are already. What is to be done
	// when the batch was committed is returned, and may be nil.
	Write(batch *store.Batch, entries []store.LogEntry) (committed func())
}

// SetJournal names the journal. It is called before anything is begun; commits may be under way, of
// other informers.
func (t *Tracker) SetJournal(j Journal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.journal = j
}

// SettleMark settles one change that left no state of an object: a Sync, or an event about the
// informer.
func (t *Tracker) SettleMark(p changelog.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watermark.Settle(p)
}

// Settle settles one change of an object and remembers its state for the next commit.
func (t *Tracker) Settle(p changelog.Position, key resource.Key, s store.Settled) {
	t.mu.Lock()
	t.settleLocked(key, s)
	t.watermark.Settle(p)
	enough := len(t.settled) == t.every
	t.mu.Unlock()
	if enough {
		t.wake()
	}
}

// settleLocked remembers an object's state, unless a later one is settled.
func (t *Tracker) settleLocked(key resource.Key, s store.Settled) {
	if before, ok := t.settled[key]; !ok || before.Seq <= s.Seq {
		t.settled[key] = s
	}
}

// taken is what one commit writes for a tracker.
type taken struct {
	settled   map[resource.Key]store.Settled
	spooled   []store.LogEntry
	watermark resource.Version // "" when it has not moved
	// committedAt is where it stood, and passed says that tombstones are left that it has passed.
	committedAt resource.Version
	passed      bool
	listed      bool
	notes       []note
	bodies      []store.Body
	journal     Journal
	committed   func() // of the journal
}

// take hands out what is to be committed.
func (t *Tracker) take() taken {
	t.mu.Lock()
	defer t.mu.Unlock()
	listed := t.watermark.ListEnded() || t.listed
	out := taken{spooled: t.spooled, listed: listed, journal: t.journal, bodies: t.bodies, committedAt: t.committed, passed: t.passed}
	t.spooled, t.listed, t.bodies = nil, false, nil
	later := t.notes[:0:0]
	for _, n := range t.notes {
		if n.after < t.watermark.First() {
			out.notes = append(out.notes, n)
		} else {
			later = append(later, n)
		}
	}
	t.notes = later
	if version := t.watermark.Version(); version != t.committed {
		out.watermark = version
	}
	if len(t.settled) > 0 { // else the commit and what settles meanwhile would share the map
		out.settled = t.settled
		if t.settled, t.spare = t.spare, nil; t.settled == nil {
			t.settled = make(map[resource.Key]store.Settled, min(len(out.settled), maxSpare))
		}
	}
	return out
}

// maxSpare is how many states there may have been in a map that is used again: one that has grown
// does not shrink.
const maxSpare = 4096

// committedAs notes that a commit succeeded, and lets the overlay go.
func (t *Tracker) committedAs(w taken) {
	t.indexer.Forget(w.settled)
	isSpare := len(w.settled) > 0 && len(w.settled) <= maxSpare
	if isSpare {
		clear(w.settled)
	}
	t.mu.Lock()
	t.committed, t.passed = cmp.Or(w.watermark, t.committed), w.passed
	if isSpare {
		t.spare = w.settled
	}
	t.mu.Unlock()
	if w.committed != nil {
		w.committed()
	}
}

// putBack returns what a failed commit did not write, behind what was settled since.
func (t *Tracker) putBack(w taken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spooled = append(w.spooled, t.spooled...)
	t.listed = w.listed
	t.notes = append(w.notes, t.notes...)
	t.bodies = append(w.bodies, t.bodies...)
	for key, s := range w.settled {
		if since, ok := t.settled[key]; !ok || since.Seq < s.Seq {
			t.settled[key] = s
		}
	}
}

// Status of one informer's checkpoint.
type Status struct {
	// Watermark that was committed: a restart resumes there.
	Watermark resource.Version
	// Unsettled changes, and settled objects that wait for the next commit.
	Unsettled, Uncommitted int
}

// Status says where the informer stands.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Status{Watermark: t.committed, Unsettled: t.watermark.Open(), Uncommitted: len(t.settled)}
}
