package history

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// reached is the highest era of a unit of which a version is stored, and the highest version in it.
// A version that is beyond it can't be stored yet, and no other of its object is behind it: so an
// object that is not in memory need not be looked for on disk. Most events are beyond it.
type reached struct {
	era     uint32
	version uint64
}

// isBeyond reports whether a version is beyond all that are stored of a unit.
func (b *batch) isBeyond(u *record.Unit, seq keys.Sequence) (bool, error) {
	r, err := b.reachedOf(u)
	if err != nil {
		return false, err
	}
	isNumber := seq.IsNumber() && seq.Entered == 0
	return seq.Era > r.era || seq.Era == r.era && isNumber && seq.Version > r.version, nil
}

func (b *batch) reachedOf(u *record.Unit) (r reached, err error) {
	r, known := b.w.reached[u.Number]
	if known {
		return r, nil
	}
	const era = 4
	value, err := b.db.get(keys.Reached(u.Number))
	switch {
	case err != nil:
		return r, err
	case len(value) == era+8:
		r = reached{binary.BigEndian.Uint32(value), binary.BigEndian.Uint64(value[era:])}
	case value != nil:
		return r, record.ErrUnreadable
	}
	if b.w.reached == nil {
		b.w.reached = map[uint32]reached{}
	}
	b.w.reached[u.Number] = r
	return r, nil
}

// reach notes that a version is stored.
func (b *batch) reach(u *record.Unit, seq keys.Sequence) error {
	r, err := b.reachedOf(u)
	if err != nil {
		return err
	}
	to := reached{seq.Era, seq.Version}
	if !seq.IsNumber() || seq.Entered > 0 {
		to.version = math.MaxUint64 // it lies behind all numbers of the era
	}
	if to.era < r.era || to.era == r.era && to.version <= r.version {
		return nil
	}
	b.w.reached[u.Number] = to
	if !slices.Contains(b.reached, u) {
		b.reached = append(b.reached, u)
	}
	return nil
}

// storeReached stores what was reached.
func (b *batch) storeReached() error {
	for _, u := range b.reached {
		r := b.w.reached[u.Number]
		value := binary.BigEndian.AppendUint32(nil, r.era)
		value = binary.BigEndian.AppendUint64(value, r.version)
		if err := b.Set(keys.Reached(u.Number), value, nil); err != nil {
			return err
		}
	}
	return nil
}
