package changelog

import (
	"encoding/binary"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
)

// stand is where a cursor stood at a time, and its form on disk.
type stand struct {
	next           Position
	pending, tried []Position // in order
	lost           lost
	// counted is what a drop takes of what is not read, up to countedAt; not on disk.
	counted   event.Loss
	countedAt Position
}

// has reports whether a position is pending.
func (s *stand) has(at Position) bool {
	_, found := slices.BinarySearch(s.pending, at)
	return found
}

// below is how much is pending before a position.
func (s *stand) below(at Position) int {
	n, _ := slices.BinarySearch(s.pending, at)
	return n
}

// encode writes next, how many positions were tried and how many are pending, the distances of
// these, and what was lost.
func (s *stand) encode() ([]byte, error) {
	out := binary.AppendUvarint(nil, uint64(s.next))
	out = binary.AppendUvarint(out, uint64(len(s.tried)))
	out = binary.AppendUvarint(out, uint64(len(s.pending)))
	for _, positions := range [][]Position{s.tried, s.pending} {
		last := Position(0)
		for _, p := range positions {
			out = binary.AppendUvarint(out, uint64(p-last))
			last = p
		}
	}
	return s.lost.append(out)
}

func decodeStand(b []byte) (s stand, err error) {
	var head [3]uint64 // next, tried, pending
	for i := range head {
		if head[i], b, err = uvarint(b); err != nil {
			return s, err
		}
	}
	s.next = Position(head[0])
	if s.tried, b, err = decodePositions(b, head[1]); err != nil {
		return s, err
	}
	if s.pending, b, err = decodePositions(b, head[2]); err != nil {
		return s, err
	}
	s.lost, err = decodeLost(b)
	return s, err
}

// decodePositions reads n positions.
func decodePositions(b []byte, n uint64) (positions []Position, rest []byte, err error) {
	if n > uint64(len(b)) { // each takes a byte at least
		return nil, nil, errRecord
	}
	last := Position(0)
	for range n {
		var d uint64
		if d, b, err = uvarint(b); err != nil {
			return nil, nil, err
		}
		last += Position(d)
		positions = append(positions, last)
	}
	return positions, b, nil
}

func uvarint(b []byte) (v uint64, rest []byte, err error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errRecord
	}
	return v, b[n:], nil
}
