package changelog

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

// cursorState is the state of a cursor at one moment, with its form on disk.
type cursorState struct {
	next           Position
	pending, tried []Position // in order
	dropped        droppedEntries
	// counted is what a drop takes of what is not read, up to countedAt; not on disk.
	counted   event.LossReport
	countedAt Position
}

// has reports whether a position is pending.
func (s *cursorState) has(at Position) bool {
	_, found := slices.BinarySearch(s.pending, at)
	return found
}

// below returns how many positions before one are pending.
func (s *cursorState) below(at Position) int {
	n, _ := slices.BinarySearch(s.pending, at)
	return n
}

// lose counts a dropped entry, unless the cursor has acked it.
func (s *cursorState) lose(e *Entry) {
	switch {
	case e.Position < s.next && !s.has(e.Position):
	case e.Kind == OfGap:
		s.keepGap(e)
	default:
		s.count(e.Position, e.loss())
	}
}

// keepGap keeps a gap in place of an earlier one with the same reason.
func (s *cursorState) keepGap(e *Entry) {
	n := slices.IndexFunc(s.dropped.kept, func(k *Entry) bool {
		return k.Kind == OfGap && k.Relist.Reason == e.Relist.Reason
	})
	if n >= 0 {
		earlier := s.dropped.kept[n]
		s.dropped.kept = slices.Delete(s.dropped.kept, n, n+1)
		s.count(earlier.Position, earlier.loss())
	}
	gap := *e
	s.dropped.keep(&gap)
}

func (s *cursorState) count(at Position, loss event.LossReport) {
	switch {
	case loss.Events == 0:
	case at < s.next:
		s.dropped.inFlight = s.dropped.inFlight.And(loss)
	default:
		s.counted, s.countedAt = s.counted.And(loss), max(s.countedAt, at)
	}
}

// reportCounted makes an event of the counted loss and returns how many events were counted. A loss
// event that the cursor has not read yet is extended, so several drops make one event. The event
// has the position of a dropped entry, which no other event has.
func (s *cursorState) reportCounted() (events int) {
	loss, at, observed := s.counted, s.countedAt, s.dropped.at
	if loss.Events == 0 {
		return 0
	}
	if e := s.unread(); e != nil {
		loss, at, observed = e.Loss.And(loss), max(at, e.Position), e.Observed
	}
	s.keepLoss(at, loss, observed)
	return s.counted.Events
}

// unread returns the loss event that the cursor has not read, nil for none. There is at most one.
func (s *cursorState) unread() *Entry {
	for _, e := range s.dropped.from(s.next) {
		if e.Kind == OfDropped {
			return e
		}
	}
	return nil
}

// keepLoss keeps a loss event, in place of the one that was not read.
func (s *cursorState) keepLoss(at Position, loss event.LossReport, observed time.Time) {
	if before := s.unread(); before != nil {
		s.dropped.kept = slices.DeleteFunc(s.dropped.kept, func(e *Entry) bool { return e == before })
	}
	s.dropped.keep(&Entry{
		Change: event.Change{Op: event.Gap, Observed: observed}, Kind: OfDropped, Loss: loss,
		Position: at,
	})
}

// restart counts the changes that were lost with the process: those pending below a drop that were
// not kept. Whether they were sent is unknown.
func (s *cursorState) restart() int {
	var gone []Position
	for _, at := range s.pending[:s.below(s.dropped.below)] {
		if s.dropped.find(at) == nil {
			gone = append(gone, at)
		}
	}
	loss := s.dropped.inFlight
	s.dropped.inFlight = event.LossReport{}
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
	// At the position of the last of them, and pending as that was: before later pending entries.
	at := gone[len(gone)-1]
	s.keepLoss(at, loss, s.dropped.at)
	s.pending = slices.Insert(s.pending, s.below(at), at)
	return loss.Events
}

// encode writes next, the number of tried and of pending positions, the distances between these,
// and what was dropped.
func (s *cursorState) encode() ([]byte, error) {
	out := binary.AppendUvarint(nil, uint64(s.next))
	out = binary.AppendUvarint(out, uint64(len(s.tried)))
	out = binary.AppendUvarint(out, uint64(len(s.pending)))
	for _, positions := range [][]Position{s.tried, s.pending} {
		last := Position(0)
		for _, p := range positions {
			out = binary.AppendUvarint(out, uint64(p-last))
			last = p
		}
	}
	return s.dropped.append(out)
}

func decodeCursorState(b []byte) (s cursorState, err error) {
	var head [3]uint64 // next, tried, pending
	for i := range head {
		if head[i], b, err = uvarint(b); err != nil {
			return s, err
		}
	}
	s.next = Position(head[0])
	if s.tried, b, err = decodePositions(b, head[1]); err != nil {
		return s, err
	}
	if s.pending, b, err = decodePositions(b, head[2]); err != nil {
		return s, err
	}
	s.dropped, err = decodeDropped(b)
	return s, err
}

func decodePositions(b []byte, n uint64) (positions []Position, rest []byte, err error) {
	if n > uint64(len(b)) { // each takes a byte at least
		return nil, nil, errRecord
	}
	last := Position(0)
	for range n {
		var d uint64
		if d, b, err = uvarint(b); err != nil {
			return nil, nil, err
		}
		last += Position(d)
		positions = append(positions, last)
	}
	return positions, b, nil
}

func uvarint(b []byte) (v uint64, rest []byte, err error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errRecord
	}
	return v, b[n:], nil
}
