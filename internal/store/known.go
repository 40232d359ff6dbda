package store

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

// known is the settled record of a live object in memory: every event of an object asks for it, and the database takes ten times as long
// to answer, in particular while tables are being written. Without pointers, for a table.
//
// What was settled since the start is here, so a start costs nothing. Records that don't fit the form (a uid that is no UUID, a version
// that is no number), those that the table does not take, and deleted objects are left to the database.
type known struct {
	uid       [16]byte
	version   uint64 // with behindBit
	written   resource.Written
	eventTime int64
}

// behindBit says, in a known version, that the object's body is behind it. No API server counts that far.
const behindBit = 1 << 63

func (k known) behind() bool { return k.version&behindBit != 0 }

// with gives the record of an object whose body is behind, or is not.
func (k known) with(behind bool) known {
	k.version &^= behindBit
	if behind {
		k.version |= behindBit
	}
	return k
}

// pack gives the known form of a record, if it has one that gives back exactly the same.
func pack(r Record) (k known, ok bool) {
	if r.Deleted || !packUUID(&k.uid, r.UID) {
		return k, false
	}
	k.written, k.eventTime = r.Written, r.EventTime
	var err error
	k.version, err = strconv.ParseUint(string(r.Version), 10, 64)
	return k, err == nil && !k.behind() && strconv.FormatUint(k.version, 10) == string(r.Version)
}

func (k known) record() Record {
	version := resource.Version(strconv.FormatUint(k.version&^behindBit, 10))
	return Record{UID: formatUUID(&k.uid), Version: version, Written: k.written, EventTime: k.eventTime}
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
	if k, ok := pack(r); ok && ix.known.put(key, k) {
		return
	}
	ix.known.remove(key)
	if ix.others != nil && !ix.others.add(key) {
		ix.others = nil
	}
}

// forgetKnown leaves all records to the database.
func (ix *Indexer) forgetKnown() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.known = newTable()
	ix.others = nil
}

// knownOf is what is known of an object, as of the last commit. A commit of it asks for it at most once.
type knownOf struct {
	known
	ok, asked bool
}

func (k *knownOf) ask(ix *Indexer, key resource.Key) {
	if k.asked {
		return
	}
	k.asked = true
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	k.known, k.ok = ix.known.get(key)
}

// is says whether an object with this uid is known to be committed since the start.
func (k *knownOf) is(uid string) bool {
	var packed [16]byte
	return k.ok && packUUID(&packed, uid) && k.uid == packed
}

// maxOthers bounds what others takes in memory, to about a MiB.
const maxOthers = 8192

// others are the keys of records that are in the database and not in known, of an informer that began with none. With it an object that is
// new need not be looked for: in a first list all are, and the look takes longer than all else that is decided about them.
type others struct{ keys map[resource.Key]struct{} }

// mayHave says whether the database has to be asked.
func (o *others) mayHave(key resource.Key) bool {
	if o == nil {
		return true
	}
	_, there := o.keys[key]
	return there
}

// add notes a key. It is false when there are too many.
func (o *others) add(key resource.Key) bool {
	if len(o.keys) >= maxOthers {
		return false
	}
	o.keys[resource.Key(strings.Clone(string(key)))] = struct{}{}
	return true
}

// lookForRecords finds out whether the informer begins with no record.
func (ix *Indexer) lookForRecords() error {
	it, err := ix.iterator(spaceRecord)
	if err != nil {
		return err
	}
	if !it.First() {
		ix.others = &others{keys: map[resource.Key]struct{}{}}
	}
	return wrap(errors.Join(it.Error(), it.Close()))
}
