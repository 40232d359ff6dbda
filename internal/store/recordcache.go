package store

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/kubebridge/bridge/internal/resource"
)

// recordCache finds cached records by key. It has no pointer for each, neither in the map nor in
// the memory of the records: following the keys of a million objects cost the garbage collector a
// sixth of the CPU of updates. It is as exact as a map of strings: keys are compared; a key whose
// hash another key has, or that is too long, is refused. Memory is reused, and never released.
type recordCache struct {
	hash   func(resource.Key) uint64
	refs   map[uint64]cacheRef // by hash
	chunks [][]byte            // of records; each twice as large as the one before, up to maxChunk
	used   int                 // bytes of the last chunk
	free   [maxUnits + 1]cacheRef
}

// cacheRef is where a record begins: its chunk, and the unit within that. Zero is none.
type cacheRef uint32

const (
	cacheUnit = 8
	chunkBits = 13   // of a cacheRef: the unit in its chunk
	minChunk  = 1024 // holds the largest record
	maxChunk  = cacheUnit << chunkBits

	// A record is its version, its uid, what was written and when its newest event was, the length
	// of its key, and the key.
	uidAt     = 8
	writtenAt = uidAt + 16
	lengthAt  = writtenAt + writtenSize
	keyAt     = lengthAt + 2
	maxUnits  = 66 // the API server allows only shorter names and namespaces
)

func newRecordCache() *recordCache {
	seed := maphash.MakeSeed()
	return &recordCache{
		hash: func(key resource.Key) uint64 { return maphash.String(seed, string(key)) },
		refs: map[uint64]cacheRef{},
	}
}

// unitsOf is how many units a record takes.
func unitsOf(key resource.Key) int { return (keyAt + len(key) + cacheUnit - 1) / cacheUnit }

// at returns the memory that begins at a cacheRef.
func (t *recordCache) at(p cacheRef) []byte {
	return t.chunks[p>>chunkBits][(p&(1<<chunkBits-1))*cacheUnit:]
}

// find returns the memory of a key's record, nil for none, and the hash of the key.
func (t *recordCache) find(key resource.Key) (rec []byte, hash uint64) {
	hash = t.hash(key)
	p := t.refs[hash]
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

func (t *recordCache) get(key resource.Key) (k cachedRecord, ok bool) {
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

// put stores a record, if it can; whether its body is behind stays as it was. It keeps nothing of
// the key's memory.
func (t *recordCache) put(key resource.Key, k cachedRecord) bool {
	rec, hash := t.find(key)
	if rec != nil {
		k = k.with(binary.LittleEndian.Uint64(rec)&behindBit != 0)
	} else {
		units := unitsOf(key)
		if units > maxUnits || t.refs[hash] != 0 {
			return false
		}
		p := t.allocate(units)
		t.refs[hash] = p
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

// setBehind sets of a cached record whether its body is behind.
func (t *recordCache) setBehind(key resource.Key, is bool) {
	if rec, _ := t.find(key); rec != nil {
		k := cachedRecord{version: binary.LittleEndian.Uint64(rec)}.with(is)
		binary.LittleEndian.PutUint64(rec, k.version)
	}
}

func (t *recordCache) remove(key resource.Key) {
	rec, hash := t.find(key)
	if rec == nil {
		return
	}
	// The free records of a size are a list: each begins with the next.
	binary.LittleEndian.PutUint32(rec, uint32(t.free[unitsOf(key)]))
	t.free[unitsOf(key)] = t.refs[hash]
	delete(t.refs, hash)
}

// allocate finds memory for a record: that of a removed one, or new.
func (t *recordCache) allocate(units int) cacheRef {
	if p := t.free[units]; p != 0 {
		t.free[units] = cacheRef(binary.LittleEndian.Uint32(t.at(p)))
		return p
	}
	if last := len(t.chunks) - 1; last < 0 || t.used+units*cacheUnit > len(t.chunks[last]) {
		t.grow()
	}
	p := cacheRef((len(t.chunks)-1)<<chunkBits | t.used/cacheUnit)
	t.used += units * cacheUnit
	return p
}

// grow adds a chunk. The rest of the one before stays unused.
func (t *recordCache) grow() {
	size, used := minChunk, cacheUnit // no record has the cacheRef zero
	if last := len(t.chunks) - 1; last >= 0 {
		size, used = min(2*len(t.chunks[last]), maxChunk), 0
	}
	t.chunks, t.used = append(t.chunks, make([]byte, size)), used
}
