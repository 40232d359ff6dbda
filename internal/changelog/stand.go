package changelog

import (
	"encoding/binary"
	"slices"
)

// stand is where a cursor stood at a time, and its form on disk.
type stand struct {
	next           Position
	pending, tried []Position // in order
}

// has reports whether a position is pending.
func (s *stand) has(at Position) bool {
	_, found := slices.BinarySearch(s.pending, at)
	return found
}

// below is how much is pending before a position.
func (s *stand) below(at Position) int {
	n, _ := slices.BinarySearch(s.pending, at)
	return n
}

// owes reports whether something is pending of what was dropped with a notice: before its position,
// where only the gaps are still there, or at it, in the place of which the notice came. A listener
// for which the notice is had not read that far, so there the notice itself is pending.
func (s *stand) owes(at Position, gaps []Position, notified bool) bool {
	if !notified && s.has(at) {
		return true
	}
	return slices.ContainsFunc(s.pending[:s.below(at)], func(p Position) bool {
		return !slices.Contains(gaps, p)
	})
}

// backTo is a cursor to which everything before a position is gone but the gaps, and which has that
// position still before it.
func (s stand) backTo(at Position, gaps []Position) stand {
	s.pending = slices.DeleteFunc(slices.Clone(s.pending), func(p Position) bool {
		return p < at && !slices.Contains(gaps, p)
	})
	if at < s.next && !s.has(at) {
		s.pending = slices.Insert(s.pending, s.below(at), at)
	}
	return s
}

// encode writes next, how many positions were tried, and the distances of these and of what is
// pending.
func (s *stand) encode() []byte {
	out := binary.AppendUvarint(nil, uint64(s.next))
	out = binary.AppendUvarint(out, uint64(len(s.tried)))
	for _, positions := range [][]Position{s.tried, s.pending} {
		last := Position(0)
		for _, p := range positions {
			out = binary.AppendUvarint(out, uint64(p-last))
			last = p
		}
	}
	return out
}

func decodeStand(b []byte) (s stand, err error) {
	next, n := binary.Uvarint(b)
	if n <= 0 {
		return s, errRecord
	}
	b = b[n:]
	tried, n := binary.Uvarint(b)
	if n <= 0 {
		return s, errRecord
	}
	s.next = Position(next)
	last := Position(0)
	for b = b[n:]; len(b) > 0; b = b[n:] {
		var d uint64
		if d, n = binary.Uvarint(b); n <= 0 {
			return s, errRecord
		}
		if uint64(len(s.tried)) == tried && len(s.pending) == 0 {
			last = 0
		}
		last += Position(d)
		if uint64(len(s.tried)) < tried {
			s.tried = append(s.tried, last)
		} else {
			s.pending = append(s.pending, last)
		}
	}
	if uint64(len(s.tried)) < tried {
		return s, errRecord
	}
	return s, nil
}
