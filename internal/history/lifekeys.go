package history

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Lives say which names a state has to look at. Most names that were ever known have gone, so a
// walk over all of them would follow the age of the history, not the objects that lived.
//
// An object that may live has an entry in spaceAlive, with the lowest time and version that it may
// have lived at. With its end that becomes a finished life: an interval of times, and one of
// versions. An interval lies in the smallest block of 2^level numbers that holds all of it. So the
// intervals around a number are in one block of each level, and what lies in a block lived at its
// middle: the objects that lived then bound what a state reads at each level.
//
// A name may be there too often, never too seldom: a state looks at its versions. These hold:
//
//   - An object whose newest stored version is no delete has an entry in spaceAlive.
//   - Each version of an object lies in a finished life, or behind the beginning in spaceAlive.

// lifeBegin is the lowest time and version that an object may have lived at.
type lifeBegin struct {
	second  uint32
	version uint64
}

func (l lifeBegin) min(other lifeBegin) lifeBegin {
	return lifeBegin{min(l.second, other.second), min(l.version, other.version)}
}

// Axes of finished lives.
const (
	axisTime    = 't' // seconds -> until, and the interval of versions
	axisVersion = 'v' // versions -> until
)

// aliveKey is of an object whose prefix among the versions is given.
func aliveKey(object []byte) []byte {
	key := bytes.Clone(object)
	key[0] = spaceAlive
	return key
}

func axisPrefix(unit uint32, axis byte) []byte {
	return append(unitPrefix(make([]byte, 0, 64), spaceLife, unit), axis)
}

// blockPrefix is the beginning of the keys of a block of a level.
func blockPrefix(unit uint32, axis, level byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(axisPrefix(unit, axis), level), number>>level)
}

// Places in keys of finished lives: unit, axis, level, block, namespace, name, from.
const (
	levelAt = 1 + 4 + 1
	blockAt = levelAt + 1
	namesAt = blockAt + 8
)

// lifeKey is of a finished life. names is the rest of an object's prefix.
func lifeKey(unit uint32, axis byte, from, until uint64, names []byte) []byte {
	key := append(blockPrefix(unit, axis, byte(bits.Len64(from^until)), from), names...)
	return binary.BigEndian.AppendUint64(key, from)
}

// splitLife takes an entry apart.
func splitLife(key, value []byte) (names []byte, from, until uint64, ok bool) {
	if len(key) < namesAt+8 || len(value) < 8 {
		return nil, 0, 0, false
	}
	end := len(key) - 8
	return key[namesAt:end], binary.BigEndian.Uint64(key[end:]), binary.BigEndian.Uint64(value), true
}

// readBegin reads the value of an entry in spaceAlive.
func readBegin(value []byte) (l lifeBegin, err error) {
	const second = 4
	if len(value) != second+8 {
		return l, errRecord
	}
	return lifeBegin{binary.BigEndian.Uint32(value), binary.BigEndian.Uint64(value[second:])}, nil
}
