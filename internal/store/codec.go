package store

import (
	"fmt"

	"github.com/klauspost/compress/s2"
)

// codec writes bodies as S2 blocks, behind one byte that says so: the cheapest that was measured per byte written
// (docs/decisions/0003-pebble.md). It holds no state and may be used concurrently.
type codec struct{}

const bodyS2 = 1

// encode gives the stored form of a body, in dst's memory when that is large enough.
func (codec) encode(dst, raw []byte) []byte {
	if need := 1 + s2.MaxEncodedLen(len(raw)); cap(dst) < need {
		dst = make([]byte, need)
	}
	dst = dst[:cap(dst)]
	dst[0] = bodyS2
	return dst[:1+len(s2.Encode(dst[1:], raw))]
}

func (codec) decode(stored []byte) ([]byte, error) {
	if len(stored) == 0 || stored[0] != bodyS2 {
		return nil, fmt.Errorf("state database: a body of %d bytes is in a form this bridge does not read", len(stored))
	}
	raw, err := s2.Decode(nil, stored[1:])
	if err != nil {
		return nil, fmt.Errorf("state database: a body is damaged: %w", err)
	}
	return raw, nil
}
