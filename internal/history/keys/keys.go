// Package keys makes the keys of a history's database and takes them apart. It knows no database.
//
// The order of the keys answers the questions: versions of one object are neighbours in the order
// of their Sequence, and entries of the timeline are by time.
package keys

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Spaces of the database: the first byte of each key.
const (
	spaceMeta     = 'M' // name -> format, cluster identities, horizon, newest time
	SpaceUnit     = 'U' // source, informer, resource -> number and what is constant of a unit
	spacePosition = 'S' // name of a source -> how far it is read
	// unit, namespace, name, sequence -> version
	SpaceVersion = 'V'
	// source, bucket, namespace, second, version, unit, name, sequence -> what happened
	// (internal/history/record)
	spaceTimeline = 'T'
	// unit -> the highest era, and in it the highest version, that something is stored of
	spaceReached = 'R'
	// unit -> era, version: retention has removed versions of before
	spaceTrimmed = 'B'
	// unit, namespace, name -> lowest second and version that an object may live at (life.go)
	SpaceAlive = 'A'
	// unit, axis, level, block, namespace, name, from -> until: a life that has ended
	SpaceLife = 'L'
	// source, index, value, unit, namespace, name, uid -> when an object had the value
	SpaceIndex = 'X'
	// unit, second, id -> event about an informer, or dead letter, in CloudEvents' JSON
	SpaceNotice = 'G'
	// unit, scope -> version and time of the newest progress
	SpaceProgress = 'P'
	// cluster, second, hash -> a write in the API server's audit log (internal/history/audit)
	SpaceRequest = 'Q'
	// cluster, claim, second, hash -> nothing: a version may be of that request
	SpaceClaim = 'C'
	// number -> when it was stored, and the rest of the key of a version of which no other sink
	// knows the user yet
	SpaceUnsent = 'N'
	// unit, second, namespace, name, sequence -> who made that version, as a stream has said
	SpaceActor = 'D'
	// unit, second -> second: between them something was made that became known late
	SpaceLate = 'W'
)

// Separator ends a namespace or a name in a key.
const Separator = 0

// RBAC takes names with a NUL: in a key, a NUL of a name is these two bytes, and the first of them
// is the first with another second. The order of names stays.
const (
	escape     = 1
	escapedNUL = 1
	escapedOne = 2
)

// AppendName appends a namespace or a name, with the Separator behind it.
func AppendName(dst []byte, name string) []byte {
	for i := range len(name) {
		switch name[i] {
		case Separator:
			dst = append(dst, escape, escapedNUL)
		case escape:
			dst = append(dst, escape, escapedOne)
		default:
			dst = append(dst, name[i])
		}
	}
	return append(dst, Separator)
}

// CutName takes the namespace or the name at the beginning of a part of a key.
func CutName(part []byte) (name string, rest []byte, ok bool) {
	before, rest, ok := bytes.Cut(part, []byte{Separator})
	if name = string(before); strings.IndexByte(name, escape) >= 0 {
		name = unescape.Replace(name)
	}
	return name, rest, ok
}

var unescape = strings.NewReplacer(
	string([]byte{escape, escapedNUL}), string([]byte{Separator}),
	string([]byte{escape, escapedOne}), string([]byte{escape}),
)

// Meta returns the key of a fact about the whole history.
func Meta(name string) []byte { return append([]byte{spaceMeta}, name...) }

// Position returns where a source is read to.
func Position(source string) []byte { return append([]byte{spacePosition}, source...) }

// InUnit appends the beginning of a unit's keys in a space.
func InUnit(dst []byte, space byte, unit uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, space), unit)
}

// AppendObject appends the beginning of the keys of an object's versions.
func AppendObject(dst []byte, unit uint32, namespace, name string) []byte {
	dst = InUnit(dst, SpaceVersion, unit)
	return AppendName(AppendName(dst, namespace), name)
}

// SplitVersion takes the key of a version apart. prefix is that of its object.
func SplitVersion(key []byte) (prefix []byte, namespace, name string, seq Sequence, ok bool) {
	const head = 1 + 4
	if len(key) < head {
		return nil, "", "", seq, false
	}
	namespace, rest, ok := CutName(key[head:])
	if ok {
		name, rest, ok = CutName(rest)
	}
	if !ok {
		return nil, "", "", seq, false
	}
	seq, ok = DecodeSequence(rest)
	return key[:len(key)-len(rest)], namespace, name, seq, ok
}

// BucketSeconds is the length of a bucket of the timeline. A question about a namespace looks once
// into each bucket; one about a whole cluster sorts a bucket at a time.
const BucketSeconds = 300

// Seconds returns a time as keys have it. What is before 1970 or behind 2105 is at the limits.
func Seconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(min(max(t.Unix(), 0), math.MaxUint32))
}

// Timeline returns the beginning of a cluster's keys in the timeline.
func Timeline(source uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{spaceTimeline}, source)
}

// AppendBucket appends the beginning of a namespace's keys in a bucket of the timeline.
func AppendBucket(dst []byte, source, bucket uint32) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, spaceTimeline), source)
	return binary.BigEndian.AppendUint32(dst, bucket)
}

// Entry is a key of the timeline taken apart.
type Entry struct {
	Source    uint32
	Namespace string
	Second    uint32
	Version   uint64
	Unit      uint32
	Name      string
	Seq       Sequence
}

// Append appends the key.
func (t *Entry) Append(dst []byte) []byte {
	dst = AppendBucket(dst, t.Source, t.Second/BucketSeconds)
	dst = AppendName(dst, t.Namespace)
	dst = binary.BigEndian.AppendUint32(dst, t.Second)
	dst = binary.BigEndian.AppendUint64(dst, t.Version)
	dst = binary.BigEndian.AppendUint32(dst, t.Unit)
	dst = AppendName(dst, t.Name)
	return t.Seq.Append(dst)
}

// DecodeEntry takes a key of the timeline apart.
func DecodeEntry(key []byte) (t Entry, ok bool) {
	const head = 1 + 4 + 4
	if len(key) < head {
		return t, false
	}
	t.Source = binary.BigEndian.Uint32(key[1:])
	var rest []byte
	if t.Namespace, rest, ok = CutName(key[head:]); !ok || len(rest) < 4+8+4 {
		return t, false
	}
	t.Second, rest = binary.BigEndian.Uint32(rest), rest[4:]
	t.Version, rest = binary.BigEndian.Uint64(rest), rest[8:]
	t.Unit, rest = binary.BigEndian.Uint32(rest), rest[4:]
	if t.Name, rest, ok = CutName(rest); !ok {
		return t, false
	}
	t.Seq, ok = DecodeSequence(rest)
	return t, ok
}

// Compare sorts entries by time, and within a second as the cluster has them.
func (t *Entry) Compare(other *Entry) int {
	return cmp.Or(cmp.Compare(t.Second, other.Second), cmp.Compare(t.Version, other.Version),
		cmp.Compare(t.Unit, other.Unit),
		cmp.Compare(t.Namespace, other.Namespace), cmp.Compare(t.Name, other.Name),
		t.Seq.Compare(other.Seq))
}

// Notice returns the key of what the stream said about a unit at a time.
func Notice(unit, second uint32, id string) []byte {
	key := InUnit(make([]byte, 0, 16+len(id)), SpaceNotice, unit)
	return append(binary.BigEndian.AppendUint32(key, second), id...)
}

// Late returns the key of a time from which on something was made that became known late.
func Late(unit, second uint32) []byte {
	return binary.BigEndian.AppendUint32(InUnit(make([]byte, 0, 16), SpaceLate, unit), second)
}

// Progress returns the key of the newest progress of a unit.
func Progress(unit uint32, scope string) []byte {
	return append(InUnit(make([]byte, 0, 8+len(scope)), SpaceProgress, unit), scope...)
}

// Reached returns the key of the highest version of a unit.
func Reached(unit uint32) []byte { return InUnit(nil, spaceReached, unit) }

// Trimmed returns the key of the version of a unit from which on states are complete.
func Trimmed(unit uint32) []byte { return InUnit(nil, spaceTrimmed, unit) }

// After returns the first key behind all that begin with a prefix, which does not consist of 0xff
// alone.
func After(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return end
}

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

// LifeBegin is the lowest time and version that an object may have lived at. Version 0: it may have
// lived at any.
type LifeBegin struct {
	Second  uint32
	Version uint64
}

// Min returns the lower of both.
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

// Axis returns the beginning of the keys of the finished lives of a unit on an axis.
func Axis(unit uint32, axis byte) []byte {
	return append(InUnit(make([]byte, 0, 64), SpaceLife, unit), axis)
}

// Block returns the beginning of the keys of a block of a level.
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

// LevelOf returns the level of the key of a finished life.
func LevelOf(key []byte) byte { return key[levelAt] }

// BlockOf returns the number of its block.
func BlockOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[blockAt:]) }

// Sequence orders a version among all of its object: the attribute of that name, taken
// apart. Its bytes sort as the attribute does.
type Sequence struct {
	// Era counts how often versions began again.
	Era uint32
	// Version is a number; text is the version where it is no number.
	Version uint64
	text    string
	// Entered is the version of the Namespace with which the object came into the selection again.
	// Its versions then are behind all of before, whatever their numbers are.
	Entered uint64
	Deleted bool
}

// Classes of versions in a key, and what follows a version.
const (
	ClassNumber  = 0
	classText    = 1
	ClassEntered = 2 // the version of the Namespace, and then a version of one of the others

	suffixNone    = 0
	suffixDeleted = 1
)

// IsNumber reports whether the version is a number, so that differences to it can be stored.
func (s Sequence) IsNumber() bool { return s.text == "" }

// Append appends the bytes that keys have.
func (s Sequence) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, s.Era)
	if s.Entered > 0 {
		dst = binary.BigEndian.AppendUint64(append(dst, ClassEntered), s.Entered)
	}
	if s.IsNumber() {
		dst = binary.BigEndian.AppendUint64(append(dst, ClassNumber), s.Version)
	} else {
		dst = append(append(append(dst, classText), s.text...), Separator)
	}
	if s.Deleted {
		return append(dst, suffixDeleted)
	}
	return append(dst, suffixNone)
}

// DecodeSequence reads what Append wrote.
func DecodeSequence(b []byte) (s Sequence, ok bool) {
	if len(b) < 5 {
		return s, false
	}
	s.Era, b = binary.BigEndian.Uint32(b), b[4:]
	if b[0] == ClassEntered && len(b) > 9 {
		if s.Entered, b = binary.BigEndian.Uint64(b[1:]), b[9:]; s.Entered == 0 {
			return s, false
		}
	}
	class, b := b[0], b[1:]
	switch {
	case class == ClassNumber && len(b) > 8:
		s.Version, b = binary.BigEndian.Uint64(b), b[8:]
	case class == classText:
		i := bytes.IndexByte(b, Separator)
		if i <= 0 {
			return s, false
		}
		s.text, b = string(b[:i]), b[i+1:]
	default:
		return s, false
	}
	if len(b) != 1 || b[0] != suffixNone && b[0] != suffixDeleted {
		return s, false
	}
	s.Deleted = b[0] == suffixDeleted
	return s, true
}

// ParseSequence reads an attribute. Where there is none that can be read, version and deleted say
// where the event belongs. An inferred delete belongs where the object was missing, which only the
// attribute says: its version is the last known one, and the object may have lived on after it.
func ParseSequence(attribute, version string, deleted bool) Sequence {
	era, rest, found := strings.Cut(attribute, ".")
	n, err := strconv.ParseUint(era, 10, 32)
	if !found || err != nil {
		return NewSequence(0, version, deleted)
	}
	s := NewSequence(uint32(n), version, deleted)
	if entered, found := strings.CutPrefix(rest, "entered."); found {
		var digits string
		digits, rest, _ = strings.Cut(entered, ".")
		s.Entered, _ = strconv.ParseUint(digits, 10, 64) // none that the bridge makes is no number
	}
	if digits, isEnd := strings.CutSuffix(rest, ".deleted"); isEnd && deleted {
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n > 0 {
			s.Version, s.text = n, ""
		}
	}
	return s
}

// NewSequence returns the sequence of a version as text in an era.
func NewSequence(era uint32, version string, deleted bool) Sequence {
	s := Sequence{Era: era, Deleted: deleted}
	n, err := strconv.ParseUint(version, 10, 64)
	if err == nil && n > 0 && version[0] != '0' {
		s.Version = n
	} else {
		s.text = strings.ReplaceAll(version, "\x00", "?")
		if s.text == "" {
			s.text = "-"
		}
	}
	return s
}

// ResourceVersion returns the version as text.
func (s Sequence) ResourceVersion() string {
	if s.IsNumber() {
		return strconv.FormatUint(s.Version, 10)
	}
	return s.text
}

// AppendResourceVersion appends the version as text.
func (s Sequence) AppendResourceVersion(dst []byte) []byte {
	if s.IsNumber() {
		return strconv.AppendUint(dst, s.Version, 10)
	}
	return append(dst, s.text...)
}

// String returns the attribute, as the bridge writes it.
func (s Sequence) String() string { return string(s.AppendText(nil)) }

// AppendText appends the attribute.
func (s Sequence) AppendText(dst []byte) []byte {
	const eraDigits, versionDigits = 8, 20
	dst = append(appendPadded(dst, uint64(s.Era), eraDigits), '.')
	if s.Entered > 0 {
		dst = append(appendPadded(append(dst, "entered."...), s.Entered, versionDigits), '.')
	}
	if s.IsNumber() {
		dst = appendPadded(dst, s.Version, versionDigits)
	} else {
		dst = append(dst, s.text...)
	}
	if s.Deleted {
		dst = append(dst, ".deleted"...)
	}
	return dst
}

// appendPadded appends a number with zeros before it.
func appendPadded(dst []byte, n uint64, digits int) []byte {
	begin := len(dst)
	dst = append(dst, "00000000000000000000"[:digits]...)
	for i := len(dst) - 1; i >= begin && n > 0; i-- {
		dst[i] = '0' + byte(n%10)
		n /= 10
	}
	return dst
}

// Compare sorts versions of one object.
func (s Sequence) Compare(other Sequence) int {
	var a, b [64]byte
	return bytes.Compare(s.Append(a[:0]), other.Append(b[:0]))
}
