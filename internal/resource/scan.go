package resource

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrSyntax says that the bytes are not the JSON that they were said to be.
var ErrSyntax = errors.New("not valid JSON")

// scanner walks over JSON that was validated before: it finds where members and values begin and end, and reads only
// what it is asked for. On bytes that are not valid JSON it stops with ErrSyntax; it never reads beyond them.
//
// An object is walked with
//
//	for s.open('{'); s.next('}'); { key := s.key(); … one value … }
type scanner struct {
	b     []byte
	i     int
	first bool  // the innermost object or array was just opened
	comma int   // where the comma before the current element stands; -1 before the first
	keyAt int   // where the current member's name begins
	err   error // the first thing that went wrong; the walk ends with it
}

// span is a string's text between its quotes, as offsets into the input. The zero span is no string at all.
type span struct{ start, end int }

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.i = len(s.b)
}

// failSyntax tells only where: what stands there may be a secret.
func (s *scanner) failSyntax() { s.fail(fmt.Errorf("%w: near byte %d", ErrSyntax, s.i)) }

// peek skips whitespace and gives the byte that comes next, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// take consumes the byte c, if it comes next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.i == len(s.b) {
		return false
	}
	s.i++
	return true
}

// open enters an object or array.
func (s *scanner) open(c byte) {
	s.first = true
	if !s.take(c) {
		s.failSyntax()
	}
}

// next goes to the next element of the innermost object or array, and leaves it at its end.
func (s *scanner) next(end byte) bool {
	first := s.first
	s.first = false
	if s.err != nil || s.take(end) {
		return false
	}
	s.comma = -1
	if !first {
		s.comma = s.i
		if !s.take(',') {
			s.failSyntax()
			return false
		}
	}
	return s.err == nil
}

// key reads a member's name, unescaped, and the colon. The bytes may be the input's own.
func (s *scanner) key() []byte {
	s.peek()
	s.keyAt = s.i
	text := s.quoted()
	if !s.take(':') {
		s.failSyntax()
	}
	return s.text(text)
}

// text is a string's value. It is the input's own bytes unless something in it was escaped.
func (s *scanner) text(t span) []byte {
	raw := s.b[t.start:t.end]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	text, err := jsontext.AppendUnquote(nil, s.b[t.start-1:t.end+1])
	if err != nil {
		s.failSyntax()
	}
	return text
}

// quoted reads a string.
func (s *scanner) quoted() span {
	if s.peek() != '"' {
		s.failSyntax()
		return span{}
	}
	start := s.i
	end := stringEnd(s.b, start)
	if end < 0 {
		s.failSyntax()
		return span{}
	}
	s.i = end
	return span{start + 1, end - 1}
}

// skip goes over a value of any kind and says where it stood.
func (s *scanner) skip() span {
	c := s.peek()
	start := s.i
	var end int
	switch c {
	case '"':
		end = stringEnd(s.b, start)
	case '{', '[':
		end = nestedEnd(s.b, start)
	default:
		end = scalarEnd(s.b, start)
	}
	if end < 0 {
		s.failSyntax()
		return span{}
	}
	s.i = end
	return span{start, end}
}

// stringEnd is the offset behind the string that begins at start, -1 when it does not end.
func stringEnd(b []byte, start int) int {
	for i := start + 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		backslashes := 0
		for b[i-1-backslashes] == '\\' { // ends at the opening quote
			backslashes++
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}

// nestedEnd is the offset behind the object or array that begins at start, -1 when it does not end.
func nestedEnd(b []byte, start int) int {
	depth := 0
	for i := start; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := stringEnd(b, i)
			if end < 0 {
				return -1
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// scalarEnd is the offset behind the number or literal that begins at start, -1 when there is none.
func scalarEnd(b []byte, start int) int {
	end := start
	for end < len(b) && !endsScalar(b[end]) {
		end++
	}
	if end == start {
		return -1
	}
	return end
}

func endsScalar(c byte) bool {
	switch c {
	case ',', ']', '}', '[', '{', ':', '"', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}
