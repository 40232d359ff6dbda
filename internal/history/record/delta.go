package record

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// A delta makes a text of another one, the base: literals, and copies of parts of the base, in
// turns.
//
//	delta   = { length of a literal | literal | length of a copy | distance }
//	distance = where the copy begins in the base, relative to the end of the last copy and as many
//	           bytes as the literal has: 0 where bytes were replaced by as many others
//
// Lengths are uvarints, the distance is a varint. The text ends a delta: its length is stored
// beside.

// Sizes of the table of an encoder. A match of at least step+7 bytes is found, where step is 8 for
// bases up to tableSize*8 bytes.
const (
	tableBits = 12
	tableSize = 1 << tableBits
	anchor    = 8 // bytes that are hashed
	// nearby is how many bytes are looked for in their place only, before the base is indexed. A
	// match that begins among them is found behind them, and goes back to where it begins.
	nearby = 24
)

// Encoder keeps its table between two calls. It is used by one goroutine.
type Encoder struct {
	table [tableSize]uint32 // place in the base + 1, by hash
}

func hashAt(b []byte, i int) uint32 {
	return uint32(binary.LittleEndian.Uint64(b[i:]) * 0x9e3779b97f4a7c15 >> (64 - tableBits))
}

// append appends the delta that makes text of base.
func (d *Encoder) append(dst, base, text []byte) []byte {
	begin := matching(base, text)
	if len(text) == 0 {
		return dst
	}
	if begin == len(text) {
		return appendCopy(dst, nil, begin, 0)
	}
	from := 0 // of text, what is not written yet
	at := 0   // of base, the end of the last copy
	if begin >= anchor {
		dst = appendCopy(dst, nil, begin, 0)
		from, at = begin, begin
	}
	indexed := false
	for i := from; i+anchor <= len(text); {
		// Most changes replace a value by one of the same length.
		place := at + i - from
		n := 0
		if place+anchor <= len(base) {
			n = matching(base[place:], text[i:])
		}
		if n < anchor && i-from >= nearby {
			if !indexed {
				d.index(base, at)
				indexed = true
			}
			if place = int(d.table[hashAt(text, i)]) - 1; place >= 0 {
				n = matching(base[place:], text[i:])
			}
		}
		if n < anchor {
			i++
			continue
		}
		back := 0
		for i-back > from && place-back > 0 && text[i-back-1] == base[place-back-1] {
			back++
		}
		i, place, n = i-back, place-back, n+back
		dst = appendCopy(dst, text[from:i], n, place-(at+i-from))
		i += n
		from, at = i, place+n
	}
	if from < len(text) {
		dst = append(binary.AppendUvarint(dst, uint64(len(text)-from)), text[from:]...)
	}
	return dst
}

// index enters the base from an offset on.
func (d *Encoder) index(base []byte, from int) {
	clear(d.table[:])
	step := max(anchor, (len(base)-from)/tableSize)
	for i := len(base) - anchor; i >= 0; i -= step { // so that the first of equal ones remains
		d.table[hashAt(base, i)] = uint32(i) + 1
		if i < from {
			break
		}
	}
}

func appendCopy(dst, literal []byte, length, distance int) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(len(literal))), literal...)
	dst = binary.AppendUvarint(dst, uint64(length))
	return binary.AppendVarint(dst, int64(distance))
}

// matching returns how many bytes both begin with.
func matching(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	const piece = 256 // compared at once, which takes a tenth of the time
	for i+piece <= n && string(a[i:i+piece]) == string(b[i:i+piece]) {
		i += piece
	}
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// ErrMisfit is in the error for a difference to something else.
var ErrMisfit = errors.New("a stored difference does not fit the version that it is to")

// applyDelta makes the text of a length that a delta and its base stand for, in the place of into,
// nil for a new one. It allocates no more than that length.
func applyDelta(into, base, delta []byte, length int) ([]byte, error) {
	text := into[:0]
	if cap(text) < length {
		text = make([]byte, 0, length)
	}
	at := 0
	for len(text) < length {
		literal, rest, ok := cutUvarint(delta, length-len(text))
		if !ok || literal > len(rest) {
			return nil, ErrMisfit
		}
		text, delta = append(text, rest[:literal]...), rest[literal:]
		if len(text) == length {
			break
		}
		n, rest, ok := cutUvarint(delta, length-len(text))
		distance, size := binary.Varint(rest)
		if !ok || size <= 0 || n+literal == 0 || distance > int64(len(base)) ||
			distance < -int64(len(base)+literal) {
			return nil, ErrMisfit
		}
		place := at + literal + int(distance)
		if place < 0 || place+n > len(base) {
			return nil, ErrMisfit
		}
		text, delta, at = append(text, base[place:place+n]...), rest[size:], place+n
	}
	if len(delta) > 0 {
		return nil, ErrMisfit
	}
	return text, nil
}

// cutUvarint reads a number that is at most a limit.
func cutUvarint(b []byte, limit int) (n int, rest []byte, ok bool) {
	v, size := binary.Uvarint(b)
	if size <= 0 || v > uint64(limit) {
		return 0, nil, false
	}
	return int(v), b[size:], true
}
