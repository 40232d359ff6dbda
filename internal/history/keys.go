package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"time"
)

// Spaces of the database: the first byte of each key.
const (
	spaceMeta     = 'M' // name -> format, cluster identities
	spaceUnit     = 'U' // source, informer, resource -> number and what is constant of a unit
	spacePosition = 'S' // name of a source -> how far it is read
	// unit, namespace, name, sequence -> version
	spaceVersion = 'V'
	// source, bucket, namespace, second, version, unit, name, sequence -> what happened
	// (summary.go)
	spaceTimeline = 'T'
	// unit -> the highest era, and in it the highest version, that something is stored of
	spaceReached = 'R'
	// unit, era, minute -> the lowest version that a watch reported in that minute
	spaceClock = 'K'
	// unit, namespace, name -> lowest second and version that an object may live at (lives.go)
	spaceAlive = 'A'
	// unit, axis, level, block, namespace, name, from -> until: a life that has ended
	spaceLife = 'L'
	// unit, second, id -> event about an informer, or dead letter, in CloudEvents' JSON
	spaceMark = 'G'
	// unit, scope -> version and time of the newest progress
	spaceProgress = 'P'
)

// separator ends a namespace or a name in a key. No object in Kubernetes has it in one.
const separator = 0

func metaKey(name string) []byte { return append([]byte{spaceMeta}, name...) }

func positionKey(source string) []byte { return append([]byte{spacePosition}, source...) }

// unitPrefix is the beginning of a unit's keys in a space.
func unitPrefix(dst []byte, space byte, unit uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, space), unit)
}

// appendObject appends the beginning of the keys of an object's versions.
func appendObject(dst []byte, unit uint32, namespace, name string) []byte {
	dst = unitPrefix(dst, spaceVersion, unit)
	dst = append(append(dst, namespace...), separator)
	return append(append(dst, name...), separator)
}

// splitVersionKey takes the key of a version apart. prefix is that of its object.
func splitVersionKey(key []byte) (prefix []byte, namespace, name string, seq sequence, ok bool) {
	const head = 1 + 4
	if len(key) < head {
		return nil, "", "", seq, false
	}
	rest := key[head:]
	first := bytes.IndexByte(rest, separator)
	if first < 0 {
		return nil, "", "", seq, false
	}
	second := bytes.IndexByte(rest[first+1:], separator)
	if second < 0 {
		return nil, "", "", seq, false
	}
	end := head + first + 1 + second + 1
	seq, ok = decodeSequence(key[end:])
	return key[:end], string(rest[:first]), string(rest[first+1 : first+1+second]), seq, ok
}

// bucketSeconds is the length of a bucket of the timeline. A question about a namespace looks once
// into each bucket; one about a whole cluster sorts a bucket at a time.
const bucketSeconds = 300

// clockSeconds is how fine times are mapped onto versions.
const clockSeconds = 60

// unixSeconds is a time as keys have it. What is before 1970 or behind 2105 is at the limits.
func unixSeconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(min(max(t.Unix(), 0), math.MaxUint32))
}

// appendBucket appends the beginning of a namespace's keys in a bucket of the timeline.
func appendBucket(dst []byte, source, bucket uint32) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, spaceTimeline), source)
	return binary.BigEndian.AppendUint32(dst, bucket)
}

// timelineEntry is a key of the timeline taken apart.
type timelineEntry struct {
	source    uint32
	namespace string
	second    uint32
	version   uint64
	unit      uint32
	name      string
	seq       sequence
}

func (t *timelineEntry) append(dst []byte) []byte {
	dst = appendBucket(dst, t.source, t.second/bucketSeconds)
	dst = append(append(dst, t.namespace...), separator)
	dst = binary.BigEndian.AppendUint32(dst, t.second)
	dst = binary.BigEndian.AppendUint64(dst, t.version)
	dst = binary.BigEndian.AppendUint32(dst, t.unit)
	dst = append(append(dst, t.name...), separator)
	return t.seq.append(dst)
}

func decodeTimeline(key []byte) (t timelineEntry, ok bool) {
	const head = 1 + 4 + 4
	if len(key) < head {
		return t, false
	}
	t.source = binary.BigEndian.Uint32(key[1:])
	rest := key[head:]
	i := bytes.IndexByte(rest, separator)
	if i < 0 || len(rest) < i+1+4+8+4 {
		return t, false
	}
	t.namespace, rest = string(rest[:i]), rest[i+1:]
	t.second, rest = binary.BigEndian.Uint32(rest), rest[4:]
	t.version, rest = binary.BigEndian.Uint64(rest), rest[8:]
	t.unit, rest = binary.BigEndian.Uint32(rest), rest[4:]
	if i = bytes.IndexByte(rest, separator); i < 0 {
		return t, false
	}
	t.name = string(rest[:i])
	t.seq, ok = decodeSequence(rest[i+1:])
	return t, ok
}

// compare sorts entries by time, and within a second as the cluster has them.
func (t *timelineEntry) compare(other *timelineEntry) int {
	return cmp.Or(cmp.Compare(t.second, other.second), cmp.Compare(t.version, other.version),
		cmp.Compare(t.unit, other.unit),
		cmp.Compare(t.namespace, other.namespace), cmp.Compare(t.name, other.name),
		t.seq.compare(other.seq))
}

func clockKey(unit, era, minute uint32) []byte {
	key := unitPrefix(make([]byte, 0, 16), spaceClock, unit)
	key = binary.BigEndian.AppendUint32(key, era)
	return binary.BigEndian.AppendUint32(key, minute)
}

func markKey(unit, second uint32, id string) []byte {
	key := unitPrefix(make([]byte, 0, 16+len(id)), spaceMark, unit)
	return append(binary.BigEndian.AppendUint32(key, second), id...)
}

func progressKey(unit uint32, scope string) []byte {
	return append(unitPrefix(make([]byte, 0, 8+len(scope)), spaceProgress, unit), scope...)
}

func reachedKey(unit uint32) []byte { return unitPrefix(nil, spaceReached, unit) }

// after is the first key behind all that begin with a prefix, which does not consist of 0xff alone.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return end
}
