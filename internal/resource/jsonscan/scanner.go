package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Scanner walks over JSON. An object is walked with
//
//	for s.Open('{'); s.Next('}'); { key := s.Key(); … one value … }
//
// An array is walked in the same way, with brackets and without Key. The first error ends every
// walk: see Err.
type Scanner struct {
	input

	level   int  // objects and arrays that are open
	first   bool // the innermost object or array was just opened
	escaped bool // in the last string something is escaped
	comma   int  // where the comma before the current element stands; -1 before the first
	keyAt   int  // where the current member's name begins

	deepest int  // level beyond which tooDeep is set; 0 for none
	tooDeep bool // see TooDeep

	spill []uint64 // of nested
}

// Span is a part of the input, as offsets from the last Release: of a string without its quotes.
// The zero Span is nothing at all.
type Span struct{ Start, End int }

// Of returns a Scanner over bytes that are all there.
func Of(b []byte) Scanner { return Scanner{input: input{b: b}} }

// Comma returns where the comma before the current element stands, -1 before the first.
func (s *Scanner) Comma() int { return s.comma }

// KeyAt returns where the current member's name begins.
func (s *Scanner) KeyAt() int { return s.keyAt }

// Peek goes over whitespace and gives the byte that comes next, 0 at the end.
func (s *Scanner) Peek() byte {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.peek()
}

func (s *Scanner) peek() byte {
	for s.i < len(s.b) || s.more() {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// AtEnd goes over whitespace and reports whether nothing follows.
func (s *Scanner) AtEnd() bool { return s.Peek() == 0 && s.i == len(s.b) }

// Consume consumes the byte c, if it comes next.
func (s *Scanner) Consume(c byte) bool {
	if s.Peek() != c || s.i == len(s.b) {
		return false
	}
	s.i++
	return true
}

// Open enters an object or array.
func (s *Scanner) Open(c byte) {
	s.first = true
	if s.Peek() == c {
		s.level++
		s.i++
		return
	}
	s.failSyntax("a value of another kind is needed")
}

// Next goes to the next element of the innermost object or array, and leaves it at its end.
func (s *Scanner) Next(end byte) bool {
	first := s.first
	s.first = false
	c := s.Peek()
	if c == end {
		s.i++
		s.level--
		return false
	}
	s.comma = -1
	if !first {
		s.comma = s.i
		if c != ',' {
			s.failSyntax("a comma or the end is needed")
			return false
		}
		s.i++
	}
	return s.err == nil
}

// Key reads a member's name, unescaped, and the colon. The bytes may be the input's own, valid
// until more is read.
func (s *Scanner) Key() []byte {
	s.Peek()
	s.keyAt = s.i
	text := s.Quoted()
	escaped := s.escaped
	if !s.Consume(':') {
		s.failSyntax("a colon is needed")
		return nil
	}
	if escaped {
		return s.Text(text)
	}
	return s.b[text.Start:text.End]
}

// Text returns a string's value. It is the input's own bytes, valid until more is read, unless
// something in it was escaped.
func (s *Scanner) Text(t Span) []byte {
	raw := s.b[t.Start:t.End]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	text, err := jsontext.AppendUnquote(nil, s.b[t.Start-1:t.End+1])
	if err != nil {
		s.failSyntax("a string can't be read")
	}
	return text
}

// Quoted reads a string.
func (s *Scanner) Quoted() Span {
	if s.Peek() != '"' {
		s.failSyntax("a string is needed")
		return Span{}
	}
	start := s.i + 1
	s.escaped = false
	if !s.str(start) {
		return Span{}
	}
	return Span{start, s.i - 1}
}

// Skip goes over a value of any kind and says where it stood.
func (s *Scanner) Skip() Span {
	c := s.Peek()
	start := s.i
	if !s.value(c) {
		return Span{}
	}
	return Span{start, s.i}
}

// Fail ends the walk with an error, if nothing went wrong before.
func (s *Scanner) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.i = len(s.b)
}

// failSyntax says that what comes next is wrong, or that it should not be the end.
func (s *Scanner) failSyntax(what string) { s.failAt(s.i, what) }

// failAt says that the byte at an offset is wrong; false, for those who say so in turn.
func (s *Scanner) failAt(i int, what string) bool {
	if i >= len(s.b) && s.in != nil {
		if s.ended == io.EOF { //nolint:errorlint // one within another error is not the input's end
			s.ended = io.ErrUnexpectedEOF
		}
		s.Fail(s.ended)
		return false
	}
	s.Fail(&SyntaxError{Offset: s.base + int64(i), what: what})
	return false
}

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

// after returns the byte at an offset, or 0 at the end of the input, where a number may end too.
func (s *Scanner) after(i int) byte {
	if i < len(s.b) || s.more() {
		return s.b[i]
	}
	return 0
}

// ErrSyntax is what every SyntaxError is.
var ErrSyntax = errors.New("not valid JSON")

// SyntaxError says where JSON is none. It has nothing of what stands there, which may be a
// secret.
type SyntaxError struct {
	// Offset of the first byte that can't be, in the whole input.
	Offset int64
	what   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: %s at byte %d", ErrSyntax, e.what, e.Offset)
}

// Is says that it is ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }
