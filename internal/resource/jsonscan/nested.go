package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// maxLevels is how many objects and arrays may be open. It bounds spill to 2 MiB, and no complete
// value of 32 MiB reaches it. What a user of the Scanner takes for too deep is much less: see
// LimitDepth.
const maxLevels = 1 << 24

// LimitDepth begins to watch the depth of what comes next: TooDeep reports whether more objects and
// arrays than these were nested. The walk continues behind them, since they are valid JSON.
func (s *Scanner) LimitDepth(levels int) {
	s.deepest, s.tooDeep = s.level+levels, false
}

// TooDeep reports whether the walk has met more levels than the last LimitDepth allowed.
func (s *Scanner) TooDeep() bool { return s.tooDeep }

// toNextLimit returns how many levels may be opened before nested has to look at them again.
func (s *Scanner) toNextLimit() int {
	if s.deepest > 0 && !s.tooDeep {
		return max(s.deepest-s.level, 0)
	}
	return maxLevels - s.level
}

// deeper is called at that depth. It reports whether one more level may be opened.
func (s *Scanner) deeper() bool {
	if s.deepest > 0 && !s.tooDeep {
		s.tooDeep = true
		return true
	}
	return s.failAt(s.i, "too many levels")
}

// nested goes over the object or array that comes next. It is the whole grammar in one loop,
// without calls where bytes are as they nearly always are, since most of the bytes of an object are
// walked over here. b and i are s.b and s.i, which every call may change.
func (s *Scanner) nested() bool {
	b, i := s.b, s.i
	s.spill = s.spill[:0]
	room := s.toNextLimit()
	depth := 0 // objects and arrays that are open
	// which of them are objects: the lowest bit is the innermost, and bits beyond a word are in
	// spill
	kinds := uint64(0)
	name := false // a name comes next, or else a value
	for {
		switch c := b[i]; c {
		case '"':
			i++
			for len(b)-i >= 8 {
				if marks := special(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
					i += bits.TrailingZeros64(marks) >> 3
					break
				}
				i += 8
			}
			if i < len(b) && b[i] == '"' {
				i++
			} else if b, i = s.rest(i); i == 0 {
				return false
			}
			if name {
				name = false
				if i < len(b) && b[i] == ':' {
					i++
				} else if b, i = s.colon(i); i == 0 {
					return false
				}
				if i >= len(b) || b[i] <= ' ' {
					if b, i = s.something(i); i == 0 {
						return false
					}
				}
				continue
			}
		case '{', '[':
			if name {
				return s.failAt(i, "a name is needed")
			}
			if depth == room {
				if s.i = i; !s.deeper() {
					return false
				}
				room = s.toNextLimit()
			}
			if depth&63 == 0 && depth > 0 {
				s.spill = append(s.spill, kinds)
			}
			depth++
			kinds <<= 1
			if name = c == '{'; name {
				kinds |= 1
			}
			i++
			if i >= len(b) || b[i] <= ' ' {
				if b, i = s.something(i); i == 0 {
					return false
				}
			}
			if b[i] != c+2 { // '}' and ']' stand two behind
				continue
			}
			name = false
		default:
			if name {
				return s.failAt(i, "a name is needed")
			}
			if b, i = s.scalarAt(i); i == 0 {
				return false
			}
		}
		// A value has ended, or an empty object or array ends here; and maybe those that it is in.
		for {
			if depth == 0 {
				s.i = i
				return true
			}
			if i >= len(b) || b[i] <= ' ' {
				if b, i = s.something(i); i == 0 {
					return false
				}
			}
			c := b[i]
			object := kinds&1 != 0
			if c == ',' {
				name = object
				i++
				if i >= len(b) || b[i] <= ' ' {
					if b, i = s.something(i); i == 0 {
						return false
					}
				}
				break
			}
			if object && c != '}' || !object && c != ']' {
				return s.failAt(i, "a comma or the end is needed")
			}
			i++
			depth--
			kinds >>= 1
			if depth&63 == 0 && depth > 0 {
				last := len(s.spill) - 1
				kinds, s.spill = s.spill[last], s.spill[:last]
			}
		}
	}
}

// These do what is rare in nested: each continues from an offset, and gives the bytes and the
// offset to continue from, 0 after an error.

// rest goes over the rest of a string.
func (s *Scanner) rest(i int) ([]byte, int) { return s.here(s.str(i)) }

// colon goes over whitespace and a colon.
func (s *Scanner) colon(i int) ([]byte, int) {
	s.i = i
	if !s.Consume(':') {
		s.failSyntax("a colon is needed")
	}
	return s.here(s.err == nil)
}

// something goes over whitespace to what comes next, which must not be the end.
func (s *Scanner) something(i int) ([]byte, int) {
	s.i = i
	if s.peek() == 0 {
		s.failSyntax("something is needed")
	}
	return s.here(s.err == nil)
}

// scalarAt goes over a number or a literal.
func (s *Scanner) scalarAt(i int) ([]byte, int) {
	s.i = i
	return s.here(s.scalar(s.b[i]))
}

func (s *Scanner) here(ok bool) ([]byte, int) {
	if !ok {
		return nil, 0
	}
	return s.b, s.i
}

// Level returns how many objects and arrays are open.
func (s *Scanner) Level() int { return s.level }

// Again goes back to a value that the walk has not finished. It begins at start, and level is what
// Level was there.
func (s *Scanner) Again(start, level int) {
	if s.err == nil {
		s.i, s.level, s.first = start, level, false
	}
}

// Drop goes to the end of an object in which the walk has ended half-way, and releases it. Nothing
// of it is kept, so that it may have any size. It looks at quotes and brackets only: where these
// are not in order, what is walked over next makes no sense. The object begins at start, and level
// is what Level was there. Drop reports whether the end was found.
func (s *Scanner) Drop(start, level int) bool {
	s.err, s.ended = nil, nil
	s.i, s.level, s.first = start, level, false
	var e extent
	for {
		for ; s.i < len(s.b); s.i++ {
			if e.ends(s.b[s.i]) {
				s.i++
				s.Release()
				return true
			}
		}
		if s.Release(); !s.more() {
			return s.failAt(s.i, "an object does not end")
		}
	}
}

// extent finds the end of an object.
type extent struct {
	open            int // objects and arrays
	quoted, escaped bool
}

func (e *extent) ends(c byte) bool {
	switch {
	case e.escaped:
		e.escaped = false
	case e.quoted && c == '\\':
		e.escaped = true
	case c == '"':
		e.quoted = !e.quoted
	case e.quoted:
	case c == '{', c == '[':
		e.open++
	case c == '}', c == ']':
		e.open--
		return e.open == 0
	}
	return false
}
