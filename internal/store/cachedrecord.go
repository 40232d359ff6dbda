package store

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

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
