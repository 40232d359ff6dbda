package store

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// codec writes bodies as S2 blocks, behind a byte that marks the format: the cheapest that was
// measured per byte written (docs/decisions/0002-one-database.md). It has no state and may be used
// concurrently.
type codec struct{}

const bodyS2 = 1

// maxBody is more than an object can have: the reflector refuses what is larger than 16 MiB.
const maxBody = 64 << 20

// encode returns the stored form of a body, in dst's memory when that is large enough.
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
		return nil, fmt.Errorf("state database: a body of %d bytes is in a form this bridge does "+
			"not read", len(stored))
	}
	// The length comes from the disk: nothing is allocated for one that no object has.
	if n, err := s2.DecodedLen(stored[1:]); err != nil || n > maxBody {
		return nil, fmt.Errorf("state database: a body is damaged: its length is %d bytes, at "+
			"most %d are stored: %w", n, maxBody, errors.Join(err, s2.ErrTooLarge))
	}
	raw, err := s2.Decode(nil, stored[1:])
	if err != nil {
		return nil, fmt.Errorf("state database: a body is damaged: %w", err)
	}
	return raw, nil
}
