package jsonscan

// Buffered is how much memory a Scanner reads into.
func (s *Scanner) Buffered() int { return len(s.buf) }
