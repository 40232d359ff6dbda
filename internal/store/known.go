package store

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

// known is the settled record of a live object in memory: every event of an object asks for it, and the database takes ten times as long
// to answer, in particular while tables are being written. Without pointers, so that the garbage collector does not follow it.
//
// What was settled since the start is here, so a start costs nothing. Records that don't fit the form (a uid that is no UUID, a version
// that is no number) and deleted objects are left to the database.
type known struct {
	uid     [16]byte
	version uint64
}

// pack gives the known form of a record, if it has one that gives back exactly the same.
func pack(r Record) (k known, ok bool) {
	if r.Deleted || !packUUID(&k.uid, r.UID) {
		return k, false
	}
	var err error
	k.version, err = strconv.ParseUint(string(r.Version), 10, 64)
	return k, err == nil && strconv.FormatUint(k.version, 10) == string(r.Version)
}

func (k known) record() Record {
	return Record{UID: formatUUID(&k.uid), Version: resource.Version(strconv.FormatUint(k.version, 10))}
}

// groups are the lengths of the parts of a UUID in hexadecimal digits.
var groups = [...]int{8, 4, 4, 4, 12}

func packUUID(dst *[16]byte, s string) bool {
	if len(s) != 36 || strings.ContainsAny(s, "ABCDEF") {
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

func formatUUID(uid *[16]byte) string {
	var digits [32]byte
	hex.Encode(digits[:], uid[:])
	out := make([]byte, 0, 36)
	for i, at := 0, 0; i < len(groups); i++ {
		if i > 0 {
			out = append(out, '-')
		}
		out = append(out, digits[at:at+groups[i]]...)
		at += groups[i]
	}
	return string(out)
}

// rememberLocked keeps what was committed.
func (ix *Indexer) rememberLocked(key resource.Key, r Record) {
	k, ok := pack(r)
	if !ok {
		delete(ix.known, key)
		return
	}
	if _, there := ix.known[key]; !there {
		key = resource.Key(strings.Clone(string(key))) // it may share an object's memory
	}
	ix.known[key] = k
}
