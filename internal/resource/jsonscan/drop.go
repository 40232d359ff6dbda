package jsonscan

// Level is how many objects and arrays are open.
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

// ends reports whether the object ends with c.
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
