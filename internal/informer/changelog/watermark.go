package changelog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Rank is the rank of an entry in the order of decision, from 1 on in each run.
type Rank uint64

// Mark is what a delta reports about versions. Its zero value is NoMark.
type Mark struct {
	Kind    MarkKind
	Version resource.Version
	// Key of the object that an Event is about; "" for unknown.
	Key resource.Key
}

// MarkKind is what the version of a mark means.
type MarkKind uint8

const (
	// NoMark marks nothing.
	NoMark MarkKind = iota
	// Event is a version of the watch. Others of the same version may follow.
	Event
	// Bookmark is a version up to which the API server has sent everything.
	Bookmark
	// ListEnd is the version of a complete list. It alone may move the watermark back: when the
	// server's history went back.
	ListEnd
)

// Watermark computes the watermark of one informer from its entries and marks (L1 to L3).
type Watermark struct {
	first   Rank        // that is not settled
	settled queue[bool] // of the entries from first on
	open    int         // entries that are not settled
	marks   queue[mark] // that were not passed, in order; at most one behind each entry
	passed  progress
	marked  progress // as if all entries were settled
	listed  bool     // a ListEnd was passed since ListEnded was asked
}

// progress is what a sequence of marks says about versions.
type progress struct {
	complete resource.Version
	// incomplete is the version of the last Event, while others of it may follow; "" for none.
	incomplete resource.Version
}

// mark is one mark, or several behind one entry (L3).
type mark struct {
	after Rank // the last entry before it
	first resource.Version
	progress
	listed bool // one of them was a ListEnd
}

// NewWatermark starts at a saved watermark, "" for none.
func NewWatermark(from resource.Version) *Watermark {
	saved := progress{complete: from}
	return &Watermark{first: 1, passed: saved, marked: saved}
}

// Append adds the next entry, and returns its rank.
func (w *Watermark) Append() Rank {
	w.settled.push(false)
	w.open++
	return w.Last()
}

// Last returns the rank of the last entry that was appended, 0 for none.
func (w *Watermark) Last() Rank { return w.first + Rank(w.settled.len()) - 1 }

// Settle settles an entry (L1). It panics where the entry is settled already.
func (w *Watermark) Settle(p Rank) {
	if p < w.first || p > w.Last() || *w.settled.at(int(p - w.first)) {
		panic(fmt.Sprintf("changelog: entry %d was settled twice, or never appended", p))
	}
	*w.settled.at(int(p - w.first)) = true
	w.open--
	n := 0
	for n < w.settled.len() && *w.settled.at(n) {
		n++
	}
	if n > 0 {
		w.settled.drop(n)
		w.first += Rank(n)
		w.pass()
	}
}

// Mark puts a version behind all entries that were appended so far.
func (w *Watermark) Mark(kind MarkKind, version resource.Version) {
	// Cloned: the version shares the memory of its object, which would be kept until everything
	// before it is settled.
	version = resource.Version(strings.Clone(string(version)))
	n := w.marks.len()
	if n == 0 || w.marks.at(n-1).after != w.Last() {
		w.marks.push(mark{after: w.Last(), first: version})
		n++
	}
	m := w.marks.at(n - 1)
	m.advance(kind, version)
	m.listed = m.listed || kind == ListEnd
	w.marked.advance(kind, version)
	w.pass()
}

// pass passes the marks behind the settled prefix (L2).
func (w *Watermark) pass() {
	n := 0
	for n < w.marks.len() && w.marks.at(n).after < w.first {
		w.passMark(w.marks.at(n))
		n++
	}
	if w.marks.drop(n); w.marks.len() > 0 {
		w.passed.seen(w.marks.at(0).first)
	}
}

func (w *Watermark) passMark(m *mark) {
	if m.listed {
		w.passed, w.listed = m.progress, true
		return
	}
	if m.complete != "" {
		w.passed.advance(Bookmark, m.complete)
	}
	if m.incomplete != "" {
		w.passed.advance(Event, m.incomplete)
	}
}

// seen completes the incomplete version when a mark with another version follows it.
func (p *progress) seen(version resource.Version) {
	if p.incomplete != "" && p.incomplete != version {
		p.complete, p.incomplete = p.incomplete, ""
	}
}

// advance moves to a mark, which is the next one of the stream.
func (p *progress) advance(kind MarkKind, version resource.Version) {
	p.seen(version)
	switch {
	case kind == ListEnd:
		p.complete, p.incomplete = version, ""
	case version.NotNewer(p.complete):
	case kind == Bookmark:
		p.complete, p.incomplete = version, ""
	default:
		p.incomplete = version
	}
}

// Version returns the watermark.
func (w *Watermark) Version() resource.Version { return w.passed.complete }

// Marked returns what the watermark would be if all entries were settled.
func (w *Watermark) Marked() resource.Version { return w.marked.complete }

// Incomplete returns the version of the last Event, while others of it may follow; "" for none.
func (w *Watermark) Incomplete() resource.Version { return w.marked.incomplete }

// Newest returns the version of the last mark.
func (w *Watermark) Newest() resource.Version { return cmp.Or(w.marked.incomplete, w.marked.complete) }

// ListEnded reports whether a ListEnd was passed since the last call.
func (w *Watermark) ListEnded() bool {
	ended := w.listed
	w.listed = false
	return ended
}

// First returns the rank of the first entry that is not settled.
func (w *Watermark) First() Rank { return w.first }

// Open returns how many entries are not settled.
func (w *Watermark) Open() int { return w.open }

// NewestVersion is the newest version that the watch has sent, with the objects that came in it so
// far. The watermark cannot pass it before a later version or a bookmark comes. So the progress for
// other replicas names its delivered objects.
type NewestVersion struct {
	Version resource.Version
	Objects []uint64 // their Key.Digest
}

// maxNewestObjects bounds the objects of a NewestVersion. One etcd transaction seldom writes more
// than one; with more no NewestVersion is reported.
const maxNewestObjects = 16

// newestVersion is the NewestVersion of a log while it is filled.
type newestVersion struct {
	NewestVersion
	isPartial bool // of some objects it is not known, or there are too many
}

// recordObject adds the object of a mark that the watermark has. version is the incomplete version
// of the Watermark.
func (f *newestVersion) recordObject(m Mark, version resource.Version) {
	if version != f.Version {
		*f = newestVersion{NewestVersion: NewestVersion{Version: version, Objects: f.Objects[:0]}}
	}
	switch {
	case m.Kind != Event || m.Version != version:
	case m.Key == "" || len(f.Objects) == maxNewestObjects:
		f.isPartial = true
	default:
		f.Objects = append(f.Objects, m.Key.Digest())
	}
}

// pendingEntries are the entries that a cursor has read and not acked, in order of positions.
type pendingEntries struct {
	// items are in order. Done items leave when they are at the front, or when they are most of
	// all: one entry that is not acked must not keep all later ones.
	items queue[pendingItem]
	done  int
}

type pendingItem struct {
	at       Position
	observed time.Time
	done     bool
}

// add adds a position behind all others.
func (p *pendingEntries) add(at Position, observed time.Time) {
	p.items.push(pendingItem{at: at, observed: observed})
}

func (p *pendingEntries) len() int { return p.items.len() - p.done }

// find returns the index of the first item at or behind a position.
func (p *pendingEntries) find(at Position) (i int, found bool) {
	i, found = slices.BinarySearchFunc(p.items.live(), at, func(item pendingItem, at Position) int {
		return cmp.Compare(item.at, at)
	})
	return i, found && !p.items.at(i).done
}

// remove takes a position out, and reports whether it was there.
func (p *pendingEntries) remove(at Position) bool {
	i, found := p.find(at)
	if !found {
		return false
	}
	p.items.at(i).done = true
	p.done++
	n := 0
	for n < p.items.len() && p.items.at(n).done {
		n++
	}
	p.items.drop(n)
	if p.done -= n; p.done > 1024 && p.done > p.items.len()/2 {
		p.items.filter(func(item *pendingItem) bool { return !item.done })
		p.done = 0
	}
	return true
}

// low returns the first position that is not acked, and when its entry was observed.
func (p *pendingEntries) low() (at Position, observed time.Time, ok bool) {
	if p.items.len() == 0 {
		return 0, time.Time{}, false
	}
	first := p.items.at(0)
	return first.at, first.observed, true
}

// positions returns the positions that are not acked, in order.
func (p *pendingEntries) positions() []Position {
	out := make([]Position, 0, p.len())
	for _, item := range p.items.live() {
		if !item.done {
			out = append(out, item.at)
		}
	}
	return out
}

// queue is a FIFO that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

func (q *queue[T]) live() []T { return q.items[q.head:] }

// remove takes the i-th item out.
func (q *queue[T]) remove(i int) { q.items = slices.Delete(q.items, q.head+i, q.head+i+1) }

// drop takes the first n items out.
func (q *queue[T]) drop(n int) {
	clear(q.items[q.head : q.head+n])
	q.head += n
	if live := q.len(); live <= q.head { // copied once for each item that was dropped, at most
		copy(q.items, q.items[q.head:])
		clear(q.items[live:])
		q.items, q.head = q.items[:live], 0
	}
}

// filter keeps the items for which keep returns true.
func (q *queue[T]) filter(keep func(*T) bool) {
	kept := q.items[:0]
	for i := range q.live() {
		if item := q.at(i); keep(item) {
			kept = append(kept, *item)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}
