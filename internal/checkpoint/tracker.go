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
	states    *changelog.States
	listed    bool             // the end of a list was passed by a commit that failed
	spooled   []store.LogEntry // changes that wait for their place in the log on disk
	notes     []note           // that wait for their place, or for the next commit
	bodies    []store.Body     // of objects that are behind
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
		watermark: changelog.New(from), committed: from, states: changelog.NewStates(),
	}
}

// Commit writes what is settled now, of this informer and all others. When it returns nil that is
// durable.
func (t *Tracker) Commit() error { return t.commit() }

// Append takes the next change, in stream order. It will be settled. key is that of the object of which
// it leaves a state, "" for none.
func (t *Tracker) Append(key resource.Key) changelog.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.watermark.Append()
	if key != "" {
		t.states.Append(key, at)
	}
	return at
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
	// Key of the object of which the change leaves the State, "" for none.
	Key   resource.Key
	State store.Settled
}

// Spool settles changes by writing them to the log on disk: entries and settled states are
// part of one commit. They are durable when a Commit that begins afterwards has returned nil.
func (t *Tracker) Spool(changes []Spooled) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		t.spooled = append(t.spooled, c.Entry)
		t.settleLocked(c.Position, c.Key, c.State)
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

// Settle settles one change, and remembers the state that it leaves of its object for a commit. key is
// that of Append.
func (t *Tracker) Settle(p changelog.Position, key resource.Key, s store.Settled) {
	t.mu.Lock()
	before := t.states.Ready()
	t.settleLocked(p, key, s)
	enough := before < t.every && t.states.Ready() == t.every
	t.mu.Unlock()
	if enough {
		t.wake()
	}
}

func (t *Tracker) settleLocked(p changelog.Position, key resource.Key, s store.Settled) {
	if key != "" {
		t.states.Settle(key, p, s)
	}
	t.watermark.Settle(p)
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
	out.settled = t.states.Take()
	return out
}

// committedAs notes that a commit succeeded, and lets the overlay go.
func (t *Tracker) committedAs(w taken) {
	t.indexer.Forget(w.settled)
	t.mu.Lock()
	t.committed, t.passed = cmp.Or(w.watermark, t.committed), w.passed
	t.states.Committed(w.settled)
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
	t.states.PutBack(w.settled)
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
	return Status{Watermark: t.committed, Unsettled: t.watermark.Open(), Uncommitted: t.states.Ready()}
}
