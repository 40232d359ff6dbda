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
	// Event bears a version of the stream: when everything up to it is settled and something later was seen, the watermark
	// may stand there.
	Event Kind = iota
	// Mark is a bookmark: everything up to its version was sent, so the watermark may stand there at once.
	Mark
	// Listed is the end of a list, which is everything as of its version. It alone may move the watermark back: when the server's
	// history went back.
	Listed
	// Aside bears no version of the stream: an item of a list, a Sync, the begin of a list.
	Aside
)

// slot is one place in the stream.
type slot struct {
	begun   bool
	pending int // what must settle: changes, and one while the controller works on it
	kind    Kind
	version resource.Version
}

// Tracker follows one informer's stream from the pop to the commit. All methods may be called concurrently.
type Tracker struct {
	indexer *store.Indexer
	wake    func()       // tells the committer that enough waits
	every   int          // how many settled objects are enough
	commit  func() error // commits now

	mu      sync.Mutex
	journal Journal // nil for none
	// slots are the places in the stream from base on: what is before base is settled.
	slots []slot
	base  uint64 // sequence number of slots[0]
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

// Note has something written in the first commit that has everything settled up to and with a place in the stream, 0 for the next
// commit; and again in the one after where a commit fails. write must not block, and may find that there is nothing to write any more.
func (t *Tracker) Note(seq uint64, write func(*store.Batch)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, note{seq, write})
}

// CatchUp has bodies of objects that are behind written in the next commit, where their versions are still those that are committed.
func (t *Tracker) CatchUp(bodies []store.Body) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bodies = append(t.bodies, bodies...)
}

// newTracker starts at a saved watermark, "" for none. The first sequence number is 1.
func (c *Committer) newTracker(ix *store.Indexer, from resource.Version) *Tracker {
	return &Tracker{
		indexer: ix, wake: c.wakeUp, every: c.cfg.Every, commit: c.Commit,
		base: 1, watermark: from, committed: from, settled: map[resource.Key]store.Settled{},
	}
}

// Commit writes what is settled now, of this informer and all others. When it returns nil that is durable.
func (t *Tracker) Commit() error { return t.commit() }

// Begin says that the delta with this sequence number was popped, and holds it until Done. Every sequence number is begun once,
// in any order.
func (t *Tracker) Begin(seq uint64, kind Kind, version resource.Version) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.slotLocked(seq)
	// Cloned: the version shares the memory of its object, which would be kept until everything before it is settled.
	s.begun, s.kind, s.version = true, kind, resource.Version(strings.Clone(string(version)))
	s.pending++
	t.unsettled++
	if seq == t.base {
		t.seenLocked(s)
	}
}

// slotLocked finds the slot of a sequence number, making those up to it.
func (t *Tracker) slotLocked(seq uint64) *slot {
	if seq < t.base {
		panic(fmt.Sprintf("checkpoint: sequence number %d was settled before (the first open one is %d)", seq, t.base))
	}
	for uint64(len(t.slots)) <= seq-t.base {
		t.slots = append(t.slots, slot{})
	}
	return &t.slots[seq-t.base]
}

// Hold says that n changes came of the delta, each of which will be settled. It is called between Begin and Done.
func (t *Tracker) Hold(seq uint64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slotLocked(seq).pending += n
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

// Spool settles held changes by writing them to the log on disk: entries and settled states are part of one commit. They are
// durable when a Commit that begins afterwards has returned nil.
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
	// Write puts it into the batch, in which the entries of the log are already. What is to be done when the batch was committed is returned, and
	// may be nil.
	Write(batch *store.Batch, entries []store.LogEntry) (committed func())
}

// SetJournal names the journal. It is called before anything is begun; commits may be under way, of other informers.
func (t *Tracker) SetJournal(j Journal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.journal = j
}

// Done says that the controller has held everything that came of the delta.
func (t *Tracker) Done(seq uint64) { t.release(seq) }

// SettleMark settles one held change that left no state of an object: a Sync, or an event about the informer.
func (t *Tracker) SettleMark(seq uint64) { t.release(seq) }

func (t *Tracker) release(seq uint64) {
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

// releaseLocked takes one hold off a slot, and moves over the slots at the front that have none.
func (t *Tracker) releaseLocked(seq uint64) {
	s := t.slotLocked(seq)
	if s.pending <= 0 {
		panic(fmt.Sprintf("checkpoint: sequence number %d was settled more often than held", seq))
	}
	s.pending--
	t.unsettled--
	if seq != t.base || s.pending > 0 {
		return
	}
	n := 0
	for n < len(t.slots) && t.slots[n].begun && t.slots[n].pending == 0 {
		t.passLocked(&t.slots[n])
		n++
	}
	t.base += uint64(n)
	t.slots = dropFront(t.slots, n)
	// The slot now at the front may show that the version behind it is complete.
	if len(t.slots) > 0 && t.slots[0].begun {
		t.seenLocked(&t.slots[0])
	}
}

// passLocked moves the front over a settled slot.
func (t *Tracker) passLocked(s *slot) {
	t.seenLocked(s)
	switch s.kind {
	case Event:
		// A watch that begins again before its last version may bring what a bookmark has covered.
		if !s.version.NotNewer(t.watermark) {
			t.front = s.version
		}
	case Mark:
		if !s.version.NotNewer(t.watermark) {
			t.front, t.watermark = "", s.version
		}
	case Listed:
		t.front, t.watermark, t.listed = "", s.version, true
	case Aside:
	}
}

// seenLocked moves the watermark to the front when s is later: only then is it known that no more events bear that version.
func (t *Tracker) seenLocked(s *slot) {
	if s.kind != Aside && t.front != "" && s.version != t.front {
		t.watermark, t.front = t.front, ""
	}
}

// dropFront drops n slots, keeping the memory while it is in use.
func dropFront(slots []slot, n int) []slot {
	if n == len(slots) && cap(slots) <= 64<<10 {
		return slots[:0]
	}
	slots = slots[n:]
	if cap(slots) > 4*len(slots)+1024 {
		return append(make([]slot, 0, 2*len(slots)), slots...)
	}
	return slots
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
		if n.seq < t.base {
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

// maxSpare is how many states there may have been in a map that is used again: one that has grown does not shrink.
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
