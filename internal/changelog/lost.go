package changelog

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

// lost is what a cursor needed of the entries that were dropped from the log on disk (L9). Losses
// are counted on a stand, outside the lock, and then given to the cursor.
type lost struct {
	// kept are entries that only this cursor has, in order of their positions: gaps, the last of
	// each reason, and events about losses. They are read, acked and restored as all others, and
	// never changed: a commit may be encoding them.
	kept []*Entry
	// inFlight is about what was pending below a position when it was dropped: lost only if the
	// process ends before it is acked.
	inFlight event.Loss
	below    Position
	at       time.Time // of the last drop
}

// isEmpty reports whether nothing depends on a drop any more.
func (ls *lost) isEmpty() bool { return len(ls.kept) == 0 && ls.inFlight.Events == 0 }

// find gives the kept entry at a position, nil for none.
func (ls *lost) find(at Position) *Entry {
	if n, found := slices.BinarySearchFunc(ls.kept, at, byPosition); found {
		return ls.kept[n]
	}
	return nil
}

// from gives the kept entries at and behind a position.
func (ls *lost) from(at Position) []*Entry {
	n, _ := slices.BinarySearchFunc(ls.kept, at, byPosition)
	return ls.kept[n:]
}

func (ls *lost) keep(e *Entry) {
	n, _ := slices.BinarySearchFunc(ls.kept, e.Position, byPosition)
	ls.kept = slices.Insert(ls.kept, n, e)
}

func byPosition(e *Entry, at Position) int { return cmp.Compare(e.Position, at) }

// settle forgets what a cursor has acked: all before next but what is pending.
func (ls *lost) settle(next Position, pending *pending) {
	ls.kept = slices.DeleteFunc(ls.kept, func(e *Entry) bool {
		_, isPending := pending.find(e.Position)
		return e.Position < next && !isPending
	})
	if low, _, ok := pending.low(); !ok || low >= ls.below {
		ls.inFlight = event.Loss{}
	}
}

// lose counts an entry that is dropped, unless the cursor has acked it.
func (s *stand) lose(e *Entry) {
	switch {
	case e.Position < s.next && !s.has(e.Position):
	case e.Kind == OfGap:
		s.keepGap(e)
	default:
		s.count(e.Position, e.loss())
	}
}

// keepGap keeps a gap in place of an earlier one with its reason.
func (s *stand) keepGap(e *Entry) {
	n := slices.IndexFunc(s.lost.kept, func(k *Entry) bool {
		return k.Kind == OfGap && k.Relist.Reason == e.Relist.Reason
	})
	if n >= 0 {
		earlier := s.lost.kept[n]
		s.lost.kept = slices.Delete(s.lost.kept, n, n+1)
		s.count(earlier.Position, earlier.loss())
	}
	gap := *e
	s.lost.keep(&gap)
}

// count counts a loss at a position.
func (s *stand) count(at Position, loss event.Loss) {
	switch {
	case loss.Events == 0:
	case at < s.next:
		s.lost.inFlight = s.lost.inFlight.And(loss)
	default:
		s.counted, s.countedAt = s.counted.And(loss), max(s.countedAt, at)
	}
}

// keepCounted has what was counted reported, and gives how much that is. It is added to an event
// that was not read: several drops become one. The position is that of an entry that was dropped,
// so no other event has it.
func (s *stand) keepCounted() (events int) {
	loss, at, observed := s.counted, s.countedAt, s.lost.at
	if loss.Events == 0 {
		return 0
	}
	if e := s.unread(); e != nil {
		loss, at, observed = e.Loss.And(loss), max(at, e.Position), e.Observed
	}
	s.keepLoss(at, loss, observed)
	return s.counted.Events
}

// unread is the event about a loss that the cursor has not read, nil for none. There is at most
// one.
func (s *stand) unread() *Entry {
	for _, e := range s.lost.from(s.next) {
		if e.Kind == OfDropped {
			return e
		}
	}
	return nil
}

// keepLoss keeps an event about a loss, in place of the one that was not read.
func (s *stand) keepLoss(at Position, loss event.Loss, observed time.Time) {
	if before := s.unread(); before != nil {
		s.lost.kept = slices.DeleteFunc(s.lost.kept, func(e *Entry) bool { return e == before })
	}
	s.lost.keep(&Entry{
		Change: event.Change{Op: event.Gap, Observed: observed}, Kind: OfDropped, Loss: loss,
		Position: at,
	})
}

// restart finds what was lost with the process: what was pending below a drop and was not kept is
// nowhere. Whether it was sent nobody knows. It gives how many changes that are.
func (s *stand) restart() int {
	var gone []Position
	for _, at := range s.pending[:s.below(s.lost.below)] {
		if s.lost.find(at) == nil {
			gone = append(gone, at)
		}
	}
	loss := s.lost.inFlight
	s.lost.inFlight = event.Loss{}
	isGone := func(at Position) bool { _, found := slices.BinarySearch(gone, at); return found }
	s.tried = slices.DeleteFunc(s.tried, isGone)
	s.pending = slices.DeleteFunc(s.pending, isGone)
	if loss.Events = min(loss.Events, len(gone)); loss.Events == 0 {
		return 0
	}
	if e := s.unread(); e != nil {
		s.keepLoss(e.Position, loss.And(e.Loss), e.Observed)
		return loss.Events
	}
	// In the place of the last of them, and pending as that was: before what is pending behind it.
	at := gone[len(gone)-1]
	s.keepLoss(at, loss, s.lost.at)
	s.pending = slices.Insert(s.pending, s.below(at), at)
	return loss.Events
}

// loss is what a stream lacks without the entry: of one about a list, what that stands for.
func (e *Entry) loss() event.Loss {
	switch {
	case e.Kind == OfGap:
		return event.Between(e.Relist.From, e.Relist.To)
	case e.Kind == OfListEnd:
		return event.Between(e.Since, e.Version)
	case e.Kind == OfProgress:
		return event.Loss{From: e.Version, To: e.Version} // of no change
	case e.Unreadable != nil:
		return event.Loss{Events: 1, From: e.Unreadable.Version, To: e.Unreadable.Version}
	default: // what a list found to be gone went somewhere in between
		own := event.Loss{Events: 1, From: e.Version, To: e.Version}
		return own.And(event.Loss{From: e.Told, To: e.Told})
	}
}

// lostRecord is the form on disk.
type lostRecord struct {
	Kept     []keptRecord `json:"kept,omitempty"`
	InFlight event.Loss   `json:"inFlight,omitzero"`
	Below    Position     `json:"below,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

type keptRecord struct {
	Position Position `json:"position"`
	Entry    *Entry   `json:"entry"`
}

// append encodes it; nothing when it is empty.
func (ls *lost) append(dst []byte) ([]byte, error) {
	if ls.isEmpty() {
		return dst, nil
	}
	r := lostRecord{InFlight: ls.inFlight, Below: ls.below, At: ls.at}
	for _, e := range ls.kept {
		r.Kept = append(r.Kept, keptRecord{e.Position, e})
	}
	data, err := json.Marshal(r)
	return append(dst, data...), err
}

func decodeLost(b []byte) (ls lost, err error) {
	if len(b) == 0 {
		return ls, nil
	}
	var r lostRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return ls, errRecord
	}
	ls = lost{inFlight: r.InFlight, below: r.Below, at: r.At}
	for _, k := range r.Kept {
		isGap := k.Entry != nil && k.Entry.Kind == OfGap && k.Entry.Relist != nil
		isLoss := k.Entry != nil && k.Entry.Kind == OfDropped
		if !isGap && !isLoss || ls.find(k.Position) != nil {
			return ls, errRecord
		}
		k.Entry.Position = k.Position
		ls.keep(k.Entry)
	}
	return ls, nil
}
