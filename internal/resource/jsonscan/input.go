package jsonscan

import (
	"io"
	"sync"
)

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

// Err is the first thing that went wrong: a SyntaxError, or the reader's error, which is
// io.ErrUnexpectedEOF where its input ends too soon.
func (in *input) Err() error { return in.err }

// Pos is the offset of what comes next.
func (in *input) Pos() int { return in.i }

// Bytes are a part of the input, valid until more is read.
func (in *input) Bytes(t Span) []byte { return in.b[t.Start:t.End] }

// Read is everything that was read from the last Release on, also what was not walked over yet;
// valid until more is read.
func (in *input) Read() []byte { return in.b }

// Offset is how much of the whole input is before the last Release.
func (in *input) Offset() int64 { return in.base }

// Ended is how the input ended, io.EOF or the reader's error; nil if it has not yet.
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
