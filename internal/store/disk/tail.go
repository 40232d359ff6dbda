package disk

import (
	"io"
	"sync"
)

// pieceBytes is how much a piece of a tail holds.
const pieceBytes = 64 << 10

type piece [pieceBytes]byte

// pieces are used again, by any journal: Pebble begins a log with each memtable, and memory that
// grew with each of them again was a fifth of all that a first snapshot allocated.
var pieces = sync.Pool{New: func() any { return new(piece) }}

// tail is memory to which bytes are added behind others, without moving those. The zero tail is
// empty.
type tail struct {
	pieces []*piece // full, but for the last
	length int
}

func (t *tail) append(p []byte) {
	for len(p) > 0 {
		if t.length == len(t.pieces)*pieceBytes {
			t.pieces = append(t.pieces, pieces.Get().(*piece))
		}
		n := copy(t.pieces[len(t.pieces)-1][t.length%pieceBytes:], p)
		t.length += n
		p = p[n:]
	}
}

// truncate forgets what lies behind the first bytes.
func (t *tail) truncate(length int) {
	keep := (length + pieceBytes - 1) / pieceBytes
	for i, p := range t.pieces[keep:] {
		pieces.Put(p)
		t.pieces[keep+i] = nil
	}
	t.pieces, t.length = t.pieces[:keep], length
}

// writeAt writes all of it.
func (t *tail) writeAt(w io.WriterAt, offset int64) error {
	left := t.length
	for _, p := range t.pieces {
		n := min(left, pieceBytes)
		if _, err := w.WriteAt(p[:n], offset); err != nil {
			return err
		}
		left, offset = left-n, offset+int64(n)
	}
	return nil
}
