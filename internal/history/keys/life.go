package keys

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Lives say which names a state has to look at. Most names that were ever known have gone, so a
// walk over all of them would follow the age of the history, not the objects that lived.
//
// An object that may live has an entry in SpaceAlive, with the lowest time and version that it may
// have lived at. With its end that becomes a finished life: an interval of times, and one of
// versions. An interval lies in the smallest block of 2^level numbers that holds all of it. So the
// intervals around a number are in one block of each level, and what lies in a block lived at its
// middle: the objects that lived then bound what a state reads at each level.
//
// A name may be there too often, never too seldom: a state looks at its versions. These hold:
//
//   - An object whose newest stored version is no delete has an entry in SpaceAlive.
//   - Each version of an object lies in a finished life, or behind the beginning in SpaceAlive.

// LifeBegin is the lowest time and version that an object may have lived at.
type LifeBegin struct {
	Second  uint32
	Version uint64
}

// Min is the lower of both.
func (l LifeBegin) Min(other LifeBegin) LifeBegin {
	return LifeBegin{min(l.Second, other.Second), min(l.Version, other.Version)}
}

// Axes of finished lives.
const (
	AxisTime    = 't' // seconds -> until, and the interval of versions
	AxisVersion = 'v' // versions -> until
)

// Alive is of an object whose prefix among the versions is given.
func Alive(object []byte) []byte {
	key := bytes.Clone(object)
	key[0] = SpaceAlive
	return key
}

// Axis is the beginning of the keys of the finished lives of a unit on an axis.
func Axis(unit uint32, axis byte) []byte {
	return append(InUnit(make([]byte, 0, 64), SpaceLife, unit), axis)
}

// Block is the beginning of the keys of a block of a level.
func Block(unit uint32, axis, level byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(Axis(unit, axis), level), number>>level)
}

// Places in keys of finished lives: unit, axis, level, block, namespace, name, from.
const (
	levelAt = 1 + 4 + 1
	blockAt = levelAt + 1
	namesAt = blockAt + 8
)

// Life is of a finished life. names is the rest of an object's prefix.
func Life(unit uint32, axis byte, from, until uint64, names []byte) []byte {
	key := append(Block(unit, axis, byte(bits.Len64(from^until)), from), names...)
	return binary.BigEndian.AppendUint64(key, from)
}

// SplitLife takes an entry apart.
func SplitLife(key, value []byte) (names []byte, from, until uint64, ok bool) {
	if len(key) < namesAt+8 || len(value) < 8 {
		return nil, 0, 0, false
	}
	end := len(key) - 8
	return key[namesAt:end], binary.BigEndian.Uint64(key[end:]), binary.BigEndian.Uint64(value), true
}

// ReadBegin reads the value of an entry in SpaceAlive.
func ReadBegin(value []byte) (l LifeBegin, ok bool) {
	const second = 4
	if len(value) != second+8 {
		return l, false
	}
	return LifeBegin{binary.BigEndian.Uint32(value), binary.BigEndian.Uint64(value[second:])}, true
}

// LevelOf is the level of the key of a finished life.
func LevelOf(key []byte) byte { return key[levelAt] }

// BlockOf is the number of its block.
func BlockOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[blockAt:]) }
