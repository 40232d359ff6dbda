package store

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/kubebridge/bridge/internal/resource"
)

// table finds known records by key. It holds no pointer for each, neither in the map nor in the memory of the records: following the keys of
// a million objects cost the garbage collector a sixth of the CPU of updates. It is as exact as a map of strings: keys are compared, and one
// whose hash another key has, or that is too long, is not taken. Memory is used again, and never given back.
type table struct {
	hash   func(resource.Key) uint64
	places map[uint64]place // by hash
	chunks [][]byte         // of records; each twice as large as the one before, up to maxChunk
	used   int              // bytes of the last chunk
	free   [maxUnits + 1]place
}

// place is where a record begins: its chunk, and the unit within that. Zero is none.
type place uint32

const (
	unit      = 8
	chunkBits = 13   // of a place: the unit in its chunk
	minChunk  = 1024 // holds the largest record
	maxChunk  = unit << chunkBits

	// A record is its version, its uid, what was written and when its newest event was, the length of its key, and the key.
	uidAt     = 8
	writtenAt = uidAt + 16
	lengthAt  = writtenAt + writtenSize
	keyAt     = lengthAt + 2
	maxUnits  = 66 // the API server takes names and namespaces of less
)

func newTable() *table {
	seed := maphash.MakeSeed()
	return &table{
		hash:   func(key resource.Key) uint64 { return maphash.String(seed, string(key)) },
		places: map[uint64]place{},
	}
}

// unitsOf is how many units a record takes.
func unitsOf(key resource.Key) int { return (keyAt + len(key) + unit - 1) / unit }

// at is the memory that begins at a place.
func (t *table) at(p place) []byte {
	return t.chunks[p>>chunkBits][(p&(1<<chunkBits-1))*unit:]
}

// find gives the memory of a key's record, nil for none, and the hash of the key.
func (t *table) find(key resource.Key) (rec []byte, hash uint64) {
	hash = t.hash(key)
	p := t.places[hash]
	if p == 0 {
		return nil, hash
	}
	rec = t.at(p)
	end := keyAt + int(binary.LittleEndian.Uint16(rec[lengthAt:]))
	if string(rec[keyAt:end]) != string(key) {
		return nil, hash
	}
	return rec, hash
}

func (t *table) get(key resource.Key) (k known, ok bool) {
	rec, _ := t.find(key)
	if rec == nil {
		return k, false
	}
	k.version = binary.LittleEndian.Uint64(rec)
	copy(k.uid[:], rec[uidAt:])
	var r Record
	r.readWritten(rec[writtenAt:])
	k.written, k.eventTime = r.Written, r.EventTime
	return k, true
}

// put takes a record, if it can; whether its body is behind stays as it was. It keeps nothing of the key's memory.
func (t *table) put(key resource.Key, k known) bool {
	rec, hash := t.find(key)
	if rec != nil {
		k = k.with(binary.LittleEndian.Uint64(rec)&behindBit != 0)
	} else {
		units := unitsOf(key)
		if units > maxUnits || t.places[hash] != 0 {
			return false
		}
		p := t.take(units)
		t.places[hash] = p
		rec = t.at(p)
		binary.LittleEndian.PutUint16(rec[lengthAt:], uint16(len(key)))
		copy(rec[keyAt:], key)
	}
	binary.LittleEndian.PutUint64(rec, k.version)
	copy(rec[uidAt:], k.uid[:])
	r := Record{Written: k.written, EventTime: k.eventTime}
	r.appendWritten(rec[:writtenAt])
	return true
}

// setBehind says of a record that the table has whether its body is behind.
func (t *table) setBehind(key resource.Key, is bool) {
	if rec, _ := t.find(key); rec != nil {
		k := known{version: binary.LittleEndian.Uint64(rec)}.with(is)
		binary.LittleEndian.PutUint64(rec, k.version)
	}
}

func (t *table) remove(key resource.Key) {
	rec, hash := t.find(key)
	if rec == nil {
		return
	}
	// The free records of a size are a list: each begins with the next.
	binary.LittleEndian.PutUint32(rec, uint32(t.free[unitsOf(key)]))
	t.free[unitsOf(key)] = t.places[hash]
	delete(t.places, hash)
}

// take finds room for a record: that of one that was removed, or new.
func (t *table) take(units int) place {
	if p := t.free[units]; p != 0 {
		t.free[units] = place(binary.LittleEndian.Uint32(t.at(p)))
		return p
	}
	if last := len(t.chunks) - 1; last < 0 || t.used+units*unit > len(t.chunks[last]) {
		t.grow()
	}
	p := place((len(t.chunks)-1)<<chunkBits | t.used/unit)
	t.used += units * unit
	return p
}

// grow adds a chunk. What is left of the one before stays unused.
func (t *table) grow() {
	size, used := minChunk, unit // no record begins at place zero
	if last := len(t.chunks) - 1; last >= 0 {
		size, used = min(2*len(t.chunks[last]), maxChunk), 0
	}
	t.chunks, t.used = append(t.chunks, make([]byte, size)), used
}
