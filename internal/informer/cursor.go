package informer

import (
	"encoding/binary"
	"slices"
)

// cursor is where a listener stands: everything before next was passed on, and settled but for what is pending.
type cursor struct {
	next    uint64
	pending []uint64 // in order
	// tried are those of pending whose events the sink may have, in order: they were in a call that
	// had no answer.
	tried []uint64
}

// caughtUp says that what was pending, up to a position, was passed on again: from now on the parcels know what of it is.
func (c *cursor) caughtUp(to uint64) {
	n := 0
	for n < len(c.pending) && c.pending[n] <= to {
		n++
	}
	c.pending = c.pending[n:]
}

// low is the first position that is not settled.
func (c cursor) low() uint64 {
	if len(c.pending) > 0 {
		return c.pending[0]
	}
	return c.next
}

// has says whether a position is pending.
func (c cursor) has(position uint64) bool {
	_, found := slices.BinarySearch(c.pending, position)
	return found
}

// wasTried reports whether the sink may have the event of a position.
func (c cursor) wasTried(position uint64) bool {
	_, found := slices.BinarySearch(c.tried, position)
	return found
}

// below is how much is pending before a position.
func (c cursor) below(position uint64) int {
	n, _ := slices.BinarySearch(c.pending, position)
	return n
}

// owes says whether something is pending of what was dropped with a notice: before its position, where only the gaps are still there, or at it,
// in the place of which the notice came. A listener for which the notice is had not read that far, so there the notice itself is pending.
func (c cursor) owes(position uint64, gaps []uint64, notified bool) bool {
	if !notified && c.has(position) {
		return true
	}
	return slices.ContainsFunc(c.pending[:c.below(position)], func(p uint64) bool { return !slices.Contains(gaps, p) })
}

// backTo is a cursor to which everything before a position is gone but the gaps, and which has that position still before it.
func (c cursor) backTo(position uint64, gaps []uint64) cursor {
	c.pending = slices.DeleteFunc(slices.Clone(c.pending), func(p uint64) bool { return p < position && !slices.Contains(gaps, p) })
	if position < c.next && !c.has(position) {
		c.pending = slices.Insert(c.pending, c.below(position), position)
	}
	return c
}

// encode writes next, how many positions were tried, and the distances of these and of what is
// pending.
func (c cursor) encode() []byte {
	out := binary.AppendUvarint(nil, c.next)
	out = binary.AppendUvarint(out, uint64(len(c.tried)))
	for _, positions := range [][]uint64{c.tried, c.pending} {
		last := uint64(0)
		for _, p := range positions {
			out = binary.AppendUvarint(out, p-last)
			last = p
		}
	}
	return out
}

func decodeCursor(b []byte) (cursor, error) {
	var c cursor
	var tried uint64
	var n int
	if c.next, n = binary.Uvarint(b); n <= 0 {
		return c, errRecord
	}
	b = b[n:]
	if tried, n = binary.Uvarint(b); n <= 0 {
		return c, errRecord
	}
	last := uint64(0)
	for b = b[n:]; len(b) > 0; b = b[n:] {
		var d uint64
		if d, n = binary.Uvarint(b); n <= 0 {
			return c, errRecord
		}
		if uint64(len(c.tried)) == tried && len(c.pending) == 0 {
			last = 0
		}
		last += d
		if uint64(len(c.tried)) < tried {
			c.tried = append(c.tried, last)
		} else {
			c.pending = append(c.pending, last)
		}
	}
	if uint64(len(c.tried)) < tried {
		return c, errRecord
	}
	return c, nil
}
