package store

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"strings"

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

	// A record is its version, its uid, what was written and when its newest event was, the sum of
	// its values in the indexes, the length of its key, and the key.
	uidAt     = 8
	writtenAt = uidAt + 16
	valuesAt  = writtenAt + writtenSize
	lengthAt  = valuesAt + 8
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
	k.values = binary.LittleEndian.Uint64(rec[valuesAt:])
	return k, true
}

// put stores a record, if it can; whether its body is stale stays as it was, and so does the sum of
// its values. It keeps nothing of the key's memory.
func (t *recordCache) put(key resource.Key, k cachedRecord) bool {
	rec, hash := t.find(key)
	if rec != nil {
		k = k.with(binary.LittleEndian.Uint64(rec)&staleBit != 0)
	} else {
		units := unitsOf(key)
		if units > maxUnits || t.refs[hash] != 0 {
			return false
		}
		p := t.allocate(units)
		t.refs[hash] = p
		rec = t.at(p)
		binary.LittleEndian.PutUint64(rec[valuesAt:], 0)
		binary.LittleEndian.PutUint16(rec[lengthAt:], uint16(len(key)))
		copy(rec[keyAt:], key)
	}
	binary.LittleEndian.PutUint64(rec, k.version)
	copy(rec[uidAt:], k.uid[:])
	r := Record{Written: k.written, EventTime: k.eventTime}
	r.appendWritten(rec[:writtenAt])
	return true
}

func (t *recordCache) setStale(key resource.Key, is bool) {
	if rec, _ := t.find(key); rec != nil {
		k := cachedRecord{version: binary.LittleEndian.Uint64(rec)}.with(is)
		binary.LittleEndian.PutUint64(rec, k.version)
	}
}

// setValues sets the sum of a cached record's values.
func (t *recordCache) setValues(key resource.Key, sum uint64) {
	if rec, _ := t.find(key); rec != nil {
		binary.LittleEndian.PutUint64(rec[valuesAt:], sum)
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

func (ix *Indexer) cacheLocked(key resource.Key, r Record) {
	if k, ok := pack(r); ok && ix.records.put(key, k) {
		return
	}
	ix.records.remove(key)
	if ix.uncached != nil && !ix.uncached.tryAdd(key) {
		ix.uncached = nil
	}
}

// dropCache leaves all records to the database.
func (ix *Indexer) dropCache() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.records = newRecordCache()
	ix.uncached = nil
}

// cacheLookup is the cached record of an object, as of the last commit. A commit looks each up at
// most once.
type cacheLookup struct {
	cachedRecord
	ok, done bool
	isNew    bool // the database has no record of it
}

func (k *cacheLookup) find(ix *Indexer, key resource.Key) {
	if k.done {
		return
	}
	k.done = true
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	k.cachedRecord, k.ok = ix.records.get(key)
	k.isNew = !k.ok && !ix.uncached.mayExist(key)
}

// isUID reports whether an object with this uid was committed since the start.
func (k *cacheLookup) isUID(uid string) bool {
	var packed [16]byte
	return k.ok && packUUID(&packed, uid) && k.uid == packed
}

// maxUncached bounds the memory of uncached, to about a MiB.
const maxUncached = 8192

// uncachedKeys are the keys of records that are in the database and not in the cache, of an
// informer that began with none. With it the database is not asked for a new object: in a first
// list all are new, and that question takes longer than everything else that is decided about them.
type uncachedKeys struct{ keys map[resource.Key]struct{} }

// mayExist reports whether the database must be asked.
func (o *uncachedKeys) mayExist(key resource.Key) bool {
	if o == nil {
		return true
	}
	_, there := o.keys[key]
	return there
}

// tryAdd adds a key. It is false when there are too many.
func (o *uncachedKeys) tryAdd(key resource.Key) bool {
	if len(o.keys) >= maxUncached {
		return false
	}
	o.keys[resource.Key(strings.Clone(string(key)))] = struct{}{}
	return true
}

// cachedRecord is the settled record of a live object in memory: every event of an object reads it,
// and the database takes ten times as long to answer, in particular while tables are being written.
// It has no pointers, for a recordCache.
//
// Records that were settled since the start are here, so a start costs nothing. The database
// answers for records that don't fit (a uid that is no UUID, a version that is no number), those
// that the cache refuses, and deleted objects.
type cachedRecord struct {
	uid       [16]byte
	version   uint64 // with staleBit
	written   resource.Written
	eventTime int64
	values    uint64 // the sum of its values in the indexes; 0 where it is not known
}

// staleBit in a cached version: the object's body is stale. No API server counts that far.
const staleBit = 1 << 63

func (k cachedRecord) isStale() bool { return k.version&staleBit != 0 }

// with returns the record of an object whose body is stale, or is not.
func (k cachedRecord) with(stale bool) cachedRecord {
	k.version &^= staleBit
	if stale {
		k.version |= staleBit
	}
	return k
}

// pack returns the cached form of a record, if it has one from which exactly the same record is
// restored.
func pack(r Record) (k cachedRecord, ok bool) {
	if r.Deleted || !packUUID(&k.uid, r.UID) {
		return k, false
	}
	k.written, k.eventTime = r.Written, r.EventTime
	var err error
	k.version, err = strconv.ParseUint(string(r.Version), 10, 64)
	return k, err == nil && !k.isStale() && r.Version[0] != '0' // which would not come back
}

func (k cachedRecord) record() Record {
	var buf [uuidLen + len("18446744073709551615")]byte
	text := string(strconv.AppendUint(appendUUID(buf[:0], &k.uid), k.version&^staleBit, 10))
	return Record{
		UID: text[:uuidLen], Version: resource.Version(text[uuidLen:]), Written: k.written,
		EventTime: k.eventTime,
	}
}

// uuidLen is the length of a UUID as text.
const uuidLen = 36

// groups are the lengths of the parts of a UUID in hexadecimal digits.
var groups = [...]int{8, 4, 4, 4, 12}

func packUUID(dst *[16]byte, s string) bool {
	if len(s) != uuidLen || strings.ContainsAny(s, "ABCDEF") {
		return false
	}
	var digits [32]byte
	n := 0
	for i, at := 0, 0; i < len(groups); i++ {
		if i > 0 {
			if s[at] != '-' {
				return false
			}
			at++
		}
		n += copy(digits[n:], s[at:at+groups[i]])
		at += groups[i]
	}
	_, err := hex.Decode(dst[:], digits[:])
	return err == nil
}

func appendUUID(out []byte, uid *[16]byte) []byte {
	var digits [32]byte
	hex.Encode(digits[:], uid[:])
	for i, at := 0, 0; i < len(groups); i++ {
		if i > 0 {
			out = append(out, '-')
		}
		out = append(out, digits[at:at+groups[i]]...)
		at += groups[i]
	}
	return out
}
