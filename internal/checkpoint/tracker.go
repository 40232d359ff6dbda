package checkpoint

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Kind says what a place in the stream means for the watermark.
type Kind uint8

const (
	// Event bears a version of the stream: when everything up to it is settled and something later
	// was seen, the watermark may stand there.
	Event Kind = iota
	// Mark is a bookmark: everything up to its version was sent, so the watermark may stand there
	// at once.
	Mark
	// Listed is the end of a list, which is everything as of its version. It alone may move the
	// watermark back: when the server's history went back.
	Listed
	// Aside bears no version of the stream: an item of a list, a Sync, the begin of a list.
	Aside
)

// Tracker follows one informer's stream from the pop to the commit. All methods may be called
// concurrently.
type Tracker struct {
	indexer *store.Indexer
	wake    func()       // tells the committer that enough waits
	every   int          // how many settled objects are enough
	commit  func() error // commits now

	mu      sync.Mutex
	journal Journal // nil for none
	// slots are the places from the first that is not settled on.
	slots ring
	// front is the version of the last settled Event that nothing later was seen behind.
	front     resource.Version
	watermark resource.Version
	listed    bool // the watermark has passed the end of a list, and that is not committed
	settled   map[resource.Key]store.Settled
	spare     map[resource.Key]store.Settled // empty, for the next commit; nil for none
	spooled   []store.LogEntry               // changes that wait for their place in the log on disk
	notes     []note                         // that wait for their place, or for the next commit
	bodies    []store.Body                   // of objects that are behind
	committed resource.Version
	passed    bool // tombstones are left that committed has passed
	unsettled int
}

// note is something that an informer writes with a commit.
type note struct {
	seq   uint64
	write func(*store.Batch)
}

// Note has something written in the first commit that has everything settled up to and with a place
// in the stream, 0 for the next commit; and again in the one after where a commit fails. write must
// not block, and may find that there is nothing to write any more.
func (t *Tracker) Note(seq uint64, write func(*store.Batch)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, note{seq, write})
}

// CatchUp has bodies of objects that are behind written in the next commit, where their versions
// are still those that are committed.
func (t *Tracker) CatchUp(bodies []store.Body) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bodies = append(t.bodies, bodies...)
}

// newTracker starts at a saved watermark, "" for none. The first sequence number is 1.
func (c *Committer) newTracker(ix *store.Indexer, from resource.Version) *Tracker {
	return &Tracker{
		indexer: ix, wake: c.wakeUp, every: c.cfg.Every, commit: c.Commit,
		slots: newRing(), watermark: from, committed: from, settled: map[resource.Key]store.Settled{},
	}
}

// Commit writes what is settled now, of this informer and all others. When it returns nil that is
// durable.
func (t *Tracker) Commit() error { return t.commit() }

// Begin takes the next place in the stream, for one delta, and holds it until Done. Calls are made
// in stream order.
func (t *Tracker) Begin(kind Kind, version resource.Version) (seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Cloned: the version shares the memory of its object, which would be kept until everything
	// before it is settled.
	seq = t.slots.push(slot{pending: 1, kind: kind, version: resource.Version(strings.Clone(string(version)))})
	t.unsettled++
	if seq == t.slots.first {
		t.seenLocked(t.slots.at(seq))
	}
	return seq
}

// Hold adds n changes, each of which will be settled, to a place that is not Done.
func (t *Tracker) Hold(seq uint64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots.at(seq).pending += n
	t.unsettled += n
}

// Spooled is a held change that goes to the log on disk instead of waiting for the sinks.
type Spooled struct {
	Seq   uint64
	Entry store.LogEntry
	// State that the change leaves of its object; nil for none.
	State *store.Settled
	Key   resource.Key
}

// Spool settles held changes by writing them to the log on disk: entries and settled states are
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
		t.releaseLocked(c.Seq)
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

// Done says that everything that came of the deltas at places from first to last is held.
func (t *Tracker) Done(first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for seq := first; seq <= last; seq++ {
		t.releaseLocked(seq)
	}
}

// SettleMark settles one held change that left no state of an object: a Sync, or an event about the
// informer.
func (t *Tracker) SettleMark(seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(seq)
}

// Settle settles one held change of an object and remembers its state for the next commit.
func (t *Tracker) Settle(seq uint64, key resource.Key, s store.Settled) {
	t.mu.Lock()
	t.settleLocked(key, s)
	t.releaseLocked(seq)
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

// releaseLocked takes one hold off a place, and moves over the places at the front that have none.
func (t *Tracker) releaseLocked(seq uint64) {
	p := t.slots.at(seq)
	if p.pending <= 0 {
		panic(fmt.Sprintf("checkpoint: place %d was settled more often than held", seq))
	}
	p.pending--
	t.unsettled--
	for t.slots.len() > 0 {
		front := t.slots.at(t.slots.first)
		t.seenLocked(front)
		if front.pending > 0 {
			return
		}
		t.passLocked(front)
		t.slots.pop()
	}
}

// passLocked moves the front over a settled place.
func (t *Tracker) passLocked(p *slot) {
	switch p.kind {
	case Event:
		// A watch that begins again before its last version may bring what a bookmark has covered.
		if !p.version.NotNewer(t.watermark) {
			t.front = p.version
		}
	case Mark:
		if !p.version.NotNewer(t.watermark) {
			t.front, t.watermark = "", p.version
		}
	case Listed:
		t.front, t.watermark, t.listed = "", p.version, true
	case Aside:
	}
}

// seenLocked moves the watermark to the front when the first place is of a later version: only then
// is it known that no more events have that of the front.
func (t *Tracker) seenLocked(p *slot) {
	if p.kind != Aside && t.front != "" && p.version != t.front {
		t.watermark, t.front = t.front, ""
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
	out := taken{spooled: t.spooled, listed: t.listed, journal: t.journal, bodies: t.bodies, committedAt: t.committed, passed: t.passed}
	t.spooled, t.listed, t.bodies = nil, false, nil
	later := t.notes[:0:0]
	for _, n := range t.notes {
		if n.seq < t.slots.first {
			out.notes = append(out.notes, n)
		} else {
			later = append(later, n)
		}
	}
	t.notes = later
	if t.watermark != t.committed {
		out.watermark = t.watermark
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
	t.listed = t.listed || w.listed
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
	// Unsettled changes and marks, and settled objects that wait for the next commit.
	Unsettled, Uncommitted int
}

// Status says where the informer stands.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Status{Watermark: t.committed, Unsettled: t.unsettled, Uncommitted: len(t.settled)}
}
