package jsonscan

import (
	"encoding/binary"
	"io"
	"math/bits"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// special marks the bytes of a word that can't simply stand in a string: quotes, backslashes,
// control characters, and what is not ASCII, by their highest bits. The lowest mark is always
// right; those above it may be the borrow of it. What is not ASCII keeps its own highest bit in the
// difference to a quote or to a backslash.
func special(word uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quotes := word ^ ones*'"'
	slashes := word ^ ones*'\\'
	return ((word - ones*' ') | (quotes - ones) | (slashes - ones)) & highs
}

// plain returns how many bytes from i on can simply stand in a string.
func plain(b []byte, i int) int {
	at := i
	for ; len(b)-at >= 8; at += 8 {
		if marks := special(binary.LittleEndian.Uint64(b[at:])); marks != 0 {
			return at + bits.TrailingZeros64(marks)/8 - i
		}
	}
	for at < len(b) && b[at] >= ' ' && b[at] < utf8.RuneSelf && b[at] != '"' && b[at] != '\\' {
		at++
	}
	return at - i
}

// str goes over a string whose text begins at i, and its closing quote.
func (s *Scanner) str(i int) bool {
	for {
		i += plain(s.b, i)
		if i == len(s.b) {
			if !s.more() {
				return s.failAt(i, "a string does not end")
			}
			continue
		}
		c := s.b[i]
		if c == '"' {
			s.i = i + 1
			return true
		}
		ok := false
		switch {
		case c == '\\':
			i, ok = s.escape(i)
		case c >= utf8.RuneSelf:
			i, ok = s.runes(i)
		default:
			return s.failAt(i, "a control character in a string")
		}
		if !ok {
			return false
		}
	}
}

// runes goes over what is not ASCII.
func (s *Scanner) runes(i int) (int, bool) {
	for i < len(s.b) && s.b[i] >= utf8.RuneSelf {
		_, size := utf8.DecodeRune(s.b[i:])
		if size > 1 {
			i += size
			continue
		}
		if utf8.FullRune(s.b[i:]) {
			return i, s.failAt(i, "invalid UTF-8")
		}
		if !s.more() {
			return i, s.failAt(len(s.b), "a string does not end")
		}
	}
	return i, true
}

// at returns the byte at an offset, reading on if it must.
func (s *Scanner) at(i int) (c byte, ok bool) {
	if i >= len(s.b) && !s.more() {
		return 0, s.failAt(i, "a value does not end")
	}
	return s.b[i], true
}

// escape goes over an escape sequence, of two halves where it is a surrogate.
func (s *Scanner) escape(i int) (int, bool) {
	s.escaped = true
	c, ok := s.at(i + 1)
	if !ok {
		return i, false
	}
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, true
	case 'u':
	default:
		return i, s.failAt(i+1, "no escape sequence")
	}
	r, ok := s.hex(i+2, 0, 0xffff)
	if !ok || !utf16.IsSurrogate(r) {
		return i + 6, ok
	}
	const lowest, low = 0xdc00, 0xdfff
	if r >= lowest {
		return i, s.failAt(i, "half a surrogate")
	}
	for j, want := range []byte{'\\', 'u'} {
		if c, ok := s.at(i + 6 + j); !ok || c != want {
			return i, ok && s.failAt(i+6+j, "half a surrogate")
		}
	}
	_, ok = s.hex(i+8, lowest, low)
	return i + 12, ok
}

// hex reads four digits of a number that is in a range, which begins and ends with its last eight
// bits.
func (s *Scanner) hex(i int, least, most rune) (r rune, ok bool) {
	for n := range 4 {
		c, ok := s.at(i + n)
		if !ok {
			return 0, false
		}
		digit := hexDigit(c)
		if digit < 0 {
			return 0, s.failAt(i+n, "no hexadecimal digit")
		}
		r = r<<4 | digit
		if shift := 12 - 4*n; r < least>>shift || r > most>>shift {
			return 0, s.failAt(i+n, "half a surrogate")
		}
	}
	return r, true
}

func hexDigit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

const (
	smallBuffer = 2 << 10
	// fullBuffer is how large the buffer grows where reads fill it: each read of an HTTP/2 body
	// ends in a message to the server. Only a value that needs more gets more.
	fullBuffer = 128 << 10
)

// largeBuffers has buffers (*[]byte) that are larger than fullBuffer. One is needed for the time of
// one value, and doubling up to it made four times the size of the value in garbage. A pool keeps
// them for that value's next version, and the garbage collector empties it where none comes.
var largeBuffers sync.Pool

// input is what a Scanner reads, and how far it is. Without a reader everything is there from the
// beginning.
type input struct {
	b   []byte // from the last Release to the end of what was read
	i   int    // what comes next
	err error  // the first thing that went wrong

	in    io.Reader
	ended error  // what the reader said last, if that was its end
	buf   []byte // all of it may be read into; b is a part of it
	base  int64  // the offset of b in the whole input
	full  bool   // the last read has filled the buffer
}

// NewReader makes a Scanner that reads as it goes, ahead as far as its buffer and the reader have
// room.
func NewReader(in io.Reader) *Scanner {
	return &Scanner{input: input{in: in}}
}

// Release forgets everything before what comes next, which offsets count from then on.
func (s *Scanner) Release() {
	s.base += int64(s.i)
	s.b = s.b[s.i:]
	s.i, s.comma, s.keyAt = 0, -1, 0
}

// Err returns the first thing that went wrong: a SyntaxError, or the reader's error, which is
// io.ErrUnexpectedEOF where its input ends too soon.
func (in *input) Err() error { return in.err }

// Pos returns the offset of what comes next.
func (in *input) Pos() int { return in.i }

// Bytes returns a part of the input, valid until more is read.
func (in *input) Bytes(t Span) []byte { return in.b[t.Start:t.End] }

// Read is everything that was read from the last Release on, also what was not walked over yet;
// valid until more is read.
func (in *input) Read() []byte { return in.b }

// Offset returns how much of the whole input is before the last Release.
func (in *input) Offset() int64 { return in.base }

// Ended returns how the input ended, io.EOF or the reader's error; nil if it has not yet.
func (in *input) Ended() error { return in.ended }

// more reads on; false at the end, or after an error.
func (s *Scanner) more() bool {
	if s.in == nil || s.ended != nil || s.err != nil {
		return false
	}
	s.makeRoom()
	for {
		have := len(s.b)
		n, err := s.in.Read(s.b[have:cap(s.b)])
		s.b = s.b[:have+n]
		s.full = len(s.b) == cap(s.b)
		if n > 0 {
			return true // the reader will say its error again
		}
		if err != nil {
			s.ended = err
			return false
		}
	}
}

// makeRoom sees to it that at least half of the buffer can be read into.
func (s *Scanner) makeRoom() {
	size := len(s.buf)
	switch {
	case size == 0:
		size = smallBuffer
	case size > fullBuffer && len(s.b) <= fullBuffer/4:
		size = fullBuffer // one large value is no reason to keep so much
	case s.full && size < fullBuffer, len(s.b) > size/2:
		size *= 2
	case cap(s.b)-len(s.b) >= size/2:
		return
	}
	before, from := s.buf, s.b
	if size != len(before) {
		s.buf = newBuffer(size)
	}
	s.b = s.buf[:copy(s.buf, from)]
	s.full = false
	if len(before) > fullBuffer && size != len(before) {
		unused := before // before itself would be on the heap, in every call
		largeBuffers.Put(&unused)
	}
}

// newBuffer makes a buffer of a size. A large one may be larger.
func newBuffer(size int) []byte {
	if size > fullBuffer {
		if b, ok := largeBuffers.Get().(*[]byte); ok && len(*b) >= size {
			return *b
		}
	}
	return make([]byte, size)
}
