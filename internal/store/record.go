package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/kubebridge/bridge/internal/resource"
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

// Key space of the database. Every key of an informer begins with a letter and the informer's
// number. What is of no unit has keys of statedb.MetaKey, which begin with M.
const (
	spaceInformer = 'I' // name -> number and scope
	spacePosition = 'p' // -> Position
	spaceMeta     = 'u' // -> metaRecord; sink -> SinkEpochs
	spaceRecord   = 'r' // object key -> Record
	spaceBody     = 'b' // object key -> body
	// version, object key -> nothing: the records of deleted objects, in order of version
	spaceTombstone = 't'
	spaceLog       = 'l' // position -> a change of the log
	spaceCursor    = 'c' // listener -> where it stands in the log
	spaceSink      = 's' // sink -> where its broker's log is to be read from after a crash
	spaceClock     = 'v' // -> the newest ticks of the version clock
	spaceListed    = 'm' // object key -> nothing: listed since the last ReplaceBegin
	// object key, uid, the version where it is not the first -> an announcement
	spaceAnnounced = 'a'
	spaceStale     = 'o' // object key -> nothing: its body is of an earlier version than its record
	spaceNamespace = 'n' // name -> where it stands, where namespaces are selected
	spaceOmits     = 'k' // sink -> the keys by which versions are left out; see Omits
	spaceIndexes   = 'x' // -> indexSet
	spaceEntry     = 'e' // number of an index, length of a value, value, object key -> nothing
	spaceValues    = 'w' // object key -> the values that it has in the indexes
)

// unitSpaces are all spaces whose keys begin with an informer's number: what a reset empties.
var unitSpaces = []byte{
	spacePosition, spaceMeta, spaceRecord, spaceBody, spaceTombstone, spaceLog, spaceCursor,
	spaceListed, spaceAnnounced, spaceNamespace, spaceStale, spaceOmits,
	spaceIndexes, spaceEntry, spaceValues,
}

func informerKey(name string) []byte { return append([]byte{spaceInformer}, name...) }

// prefix of an informer's keys in one space.
func prefix(space byte, id uint32) []byte { return appendPrefix(nil, space, id) }

func appendPrefix(dst []byte, space byte, id uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, space), id)
}

func objectKey(space byte, id uint32, key resource.Key) []byte {
	return append(prefix(space, id), key...)
}

// announcementKey ends with the lengths of uid and again. The name of an object may hold any
// character but / and %, so none can separate them.
func announcementKey(id uint32, key resource.Key, a *announcement) []byte {
	k := append(append(objectKey(spaceAnnounced, id, key), a.uid...), a.again...)
	k = binary.BigEndian.AppendUint16(k, uint16(len(a.uid)))
	return binary.BigEndian.AppendUint16(k, uint16(len(a.again)))
}

// splitAnnouncementKey takes such a key, behind its prefix, apart.
func splitAnnouncementKey(tail []byte) (key resource.Key, uid, again string, err error) {
	const lengths = 4
	rest := len(tail) - lengths
	if rest < 0 {
		return "", "", "", errAnnouncement
	}
	ofUID := int(binary.BigEndian.Uint16(tail[rest:]))
	ofAgain := int(binary.BigEndian.Uint16(tail[rest+2:]))
	end := rest - ofUID - ofAgain
	if end < 0 {
		return "", "", "", errAnnouncement
	}
	text := string(tail[:rest])
	return resource.Key(text[:end]), text[end : end+ofUID], text[end+ofUID:], nil
}

// tombstoneKey sorts by version: numbers without leading zeros sort by length, then by digits.
func tombstoneKey(id uint32, version resource.Version, key resource.Key) []byte {
	k := append(prefix(spaceTombstone, id), byte(len(version)))
	k = append(k, version...)
	return append(k, key...)
}

// after is the first key behind all that begin with p. The informer's number never overflows, so
// the last byte may carry.
func after(p []byte) []byte {
	end := append([]byte{}, p...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			break
		}
	}
	return end
}

// Record is what is always known of an object: its identity, its version, whether it is gone, and
// what shows when and by whom its next version was written.
type Record struct {
	UID     string
	Version resource.Version
	// Deleted: the object is gone, as of Version; kept until the watermark has passed that version,
	// so that a replay of what came before does not bring it back.
	Deleted bool
	// Written is of the managedFields of this version.
	Written resource.Written
	// EventTime is that of the newest event of the object, in Unix nanoseconds; 0 for none.
	EventTime int64
}

// Record encoding: flags, length of the uid, uid, with flagWritten the time of its newest event and
// what was written, version.
const (
	flagDeleted = 1
	flagWritten = 2

	// writtenSize is that of EventTime, Floor, and all marks.
	writtenSize = 8 + 4 + 4*len(resource.Written{}.Marks)
)

func (r Record) append(dst []byte) []byte {
	var flags byte
	if r.Deleted {
		flags |= flagDeleted
	}
	isWritten := r.Written != (resource.Written{}) || r.EventTime != 0
	if isWritten {
		flags |= flagWritten
	}
	dst = append(dst, flags, byte(len(r.UID)))
	dst = append(dst, r.UID...)
	if isWritten {
		dst = r.appendWritten(dst)
	}
	return append(dst, r.Version...)
}

func (r *Record) appendWritten(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.EventTime))
	dst = binary.LittleEndian.AppendUint32(dst, r.Written.Floor)
	for _, mark := range r.Written.Marks {
		dst = binary.LittleEndian.AppendUint32(dst, mark)
	}
	return dst
}

func (r *Record) readWritten(b []byte) {
	r.EventTime = int64(binary.LittleEndian.Uint64(b))
	r.Written.Floor = binary.LittleEndian.Uint32(b[8:])
	for i := range r.Written.Marks {
		r.Written.Marks[i] = binary.LittleEndian.Uint32(b[12+4*i:])
	}
}

var errRecord = errors.New("state database: a record does not parse; the directory is damaged: " +
	"restore it from a copy, or reset the informer")

func parseRecord(b []byte) (r Record, err error) {
	const known = flagDeleted | flagWritten
	if len(b) < 2 || len(b) < 2+int(b[1]) || b[0]&^known != 0 {
		return r, errRecord
	}
	r.Deleted = b[0]&flagDeleted != 0
	r.UID = string(b[2 : 2+int(b[1])])
	rest := b[2+int(b[1]):]
	if b[0]&flagWritten != 0 {
		if len(rest) < writtenSize {
			return Record{}, errRecord
		}
		r.readWritten(rest)
		rest = rest[writtenSize:]
	}
	r.Version = resource.Version(rest)
	return r, nil
}

var errAnnouncement = errors.New("state database: an announcement does not parse; the directory " +
	"is damaged: restore it from a copy, or reset the informer")

// spans ends a sorted table where the bodies begin, and where they end. The bodies of a list come
// in order of their keys, so the tables of one flush follow those of the flush before, and need no
// merging. A table with announcements or records too would overlap all earlier ones, and drag their
// bodies, nine tenths of all bytes, through each compaction of small keys that are soon deleted.
func spans(start []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	switch {
	case len(start) == 0 || start[0] < spaceBody:
		return policy, []byte{spaceBody}, nil
	case start[0] == spaceBody:
		return policy, []byte{spaceBody + 1}, nil
	default:
		return policy, nil, nil
	}
}
