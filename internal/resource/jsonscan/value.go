package jsonscan

// value goes over a value that begins with c, which comes next.
func (s *Scanner) value(c byte) bool {
	switch c {
	case '"':
		s.escaped = false
		return s.str(s.i + 1)
	case '{', '[':
		return s.nested()
	default:
		return s.scalar(c)
	}
}

// scalar goes over a number or a literal that begins with c, which comes next.
func (s *Scanner) scalar(c byte) bool {
	switch c {
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	}
	s.failSyntax("a value is needed")
	return false
}

func (s *Scanner) literal(text string) bool {
	i := s.i
	if end := i + len(text); end <= len(s.b) && string(s.b[i:end]) == text {
		s.i = end
		return true
	}
	for n := range len(text) {
		if c, ok := s.at(i + n); !ok || c != text[n] {
			return ok && s.failAt(i+n, "no literal")
		}
	}
	s.i = i + len(text)
	return true
}

// number goes over a number. What may follow it is for others to say.
func (s *Scanner) number() bool {
	i := s.i
	if s.b[i] == '-' {
		i++
	}
	c, ok := s.at(i)
	switch {
	case !ok:
		return false
	case c == '0':
		i++
	default:
		if i, ok = s.digits(i); !ok {
			return false
		}
	}
	if c = s.after(i); c == '.' {
		if i, ok = s.digits(i + 1); !ok {
			return false
		}
		c = s.after(i)
	}
	if c == 'e' || c == 'E' {
		i++
		if c = s.after(i); c == '+' || c == '-' {
			i++
		}
		if i, ok = s.digits(i); !ok {
			return false
		}
	}
	s.i = i
	return true
}

// digits goes over one digit or more.
func (s *Scanner) digits(i int) (end int, ok bool) {
	for end = i; ; end++ {
		if end == len(s.b) && !s.more() {
			break
		}
		if c := s.b[end]; c < '0' || c > '9' {
			break
		}
	}
	if end == i {
		return i, s.failAt(i, "a digit is needed")
	}
	return end, true
}

// after is the byte at an offset, or 0 at the end of the input, where a number may end too.
func (s *Scanner) after(i int) byte {
	if i < len(s.b) || s.more() {
		return s.b[i]
	}
	return 0
}
