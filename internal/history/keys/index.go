package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Indexes: the second part of a key in SpaceIndex.
const (
	IndexOwner = 'o' // the uids of an object's owners
	IndexNode  = 'n' // spec.nodeName of a pod
)

// IndexSpan is the time in which an object may have had a value, in seconds. It may be too long,
// never too short: whoever finds an object by it reads its version, and compares.
type IndexSpan struct {
	From  uint32
	Until uint32 // 0: it may have it now
}

// Has reports whether a second is in the span.
func (s IndexSpan) Has(second uint32) bool {
	return s.From <= second && (s.Until == 0 || s.Until >= second)
}

// Overlaps reports whether a part of the span is from one second to another.
func (s IndexSpan) Overlaps(since, until uint32) bool {
	return s.From <= until && (s.Until == 0 || s.Until >= since)
}

// Append appends the value of an entry.
func (s IndexSpan) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, s.From), s.Until)
}

// ReadIndexSpan reads the value of an entry.
func ReadIndexSpan(value []byte) (s IndexSpan, ok bool) {
	if len(value) != 8 {
		return s, false
	}
	return IndexSpan{binary.BigEndian.Uint32(value), binary.BigEndian.Uint32(value[4:])}, true
}

// longestValue is how long a value is in a key at most: a longer one is there as its hash. An owner
// reference may name any text as a uid.
const longestValue = 512

// AppendIndex appends the beginning of the entries of a value in a cluster.
func AppendIndex(dst []byte, source uint32, index byte, value string) []byte {
	dst = append(binary.BigEndian.AppendUint32(append(dst, SpaceIndex), source), index)
	if len(value) > longestValue {
		sum := sha256.Sum256([]byte(value))
		value = "sha256:" + hex.EncodeToString(sum[:])
	}
	return AppendName(dst, value)
}

// AppendIndexed appends the rest of an entry. names are the rest of an object's prefix among the
// versions.
func AppendIndexed(dst []byte, unit uint32, names []byte, uid string) []byte {
	return append(append(binary.BigEndian.AppendUint32(dst, unit), names...), uid...)
}

// Indexed is the rest of the key of an entry, behind the beginning that AppendIndex makes.
type Indexed struct {
	Unit            uint32
	Names           []byte // as AppendIndexed has them
	Namespace, Name string
	UID             string
}

// SplitIndexed takes the rest of the key of an entry apart.
func SplitIndexed(tail []byte) (x Indexed, ok bool) {
	if len(tail) < 4 {
		return x, false
	}
	x.Unit, tail = binary.BigEndian.Uint32(tail), tail[4:]
	rest := tail
	if x.Namespace, rest, ok = CutName(rest); !ok {
		return x, false
	}
	if x.Name, rest, ok = CutName(rest); !ok {
		return x, false
	}
	x.Names, x.UID = tail[:len(tail)-len(rest)], string(rest)
	return x, true
}

// CutIndex takes the beginning off the key of an entry.
func CutIndex(key []byte) (tail []byte, ok bool) {
	const head = 1 + 4 + 1
	if len(key) < head {
		return nil, false
	}
	_, tail, ok = bytes.Cut(key[head:], []byte{Separator})
	return tail, ok
}

// RequestID distinguishes the requests of a cluster.
type RequestID struct {
	Second uint32 // in which it ended
	Hash   [16]byte
}

// requestIDSize is the length of a RequestID in a key.
const requestIDSize = 4 + 16

// Append appends the bytes that keys have.
func (r RequestID) Append(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, r.Second), r.Hash[:]...)
}

// Request returns the key of a request.
func Request(cluster string, r RequestID) []byte { return r.Append(Requests(cluster)) }

// Requests returns the beginning of the keys of a cluster's requests.
func Requests(cluster string) []byte { return AppendName([]byte{SpaceRequest}, cluster) }

// Claims returns the beginning of the keys of the requests with a claim.
func Claims(cluster, claim string) []byte {
	return AppendName(AppendName([]byte{SpaceClaim}, cluster), claim)
}

// SplitRequest takes the end of a key in SpaceRequest or SpaceClaim off.
func SplitRequest(key []byte) (head []byte, r RequestID, ok bool) {
	if len(key) < requestIDSize {
		return nil, r, false
	}
	head, tail := key[:len(key)-requestIDSize], key[len(key)-requestIDSize:]
	r.Second = binary.BigEndian.Uint32(tail)
	copy(r.Hash[:], tail[4:])
	return head, r, true
}

// AppendRequest appends the value of a request: its claims, and what package audit keeps of it.
func AppendRequest(dst []byte, claims []string, data []byte) []byte {
	for _, claim := range claims {
		dst = AppendName(dst, claim)
	}
	return append(AppendName(dst, ""), data...)
}

// ReadRequest reads what AppendRequest wrote.
func ReadRequest(value []byte) (claims []string, data []byte, ok bool) {
	for {
		claim, rest, ok := CutName(value)
		if !ok || claim == "" {
			return claims, rest, ok
		}
		claims, value = append(claims, claim), rest
	}
}

// Unsent returns the key of the version that was stored as the number-th.
func Unsent(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{SpaceUnsent}, number)
}

// UnsentNumber reads what Unsent wrote.
func UnsentNumber(key []byte) (number uint64, ok bool) {
	if len(key) != 1+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// AppendUnsent appends its value: the second in which it was made, when it was stored, in
// milliseconds, and its key.
func AppendUnsent(dst []byte, second uint32, stored time.Time, version []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, second)
	return append(binary.BigEndian.AppendUint64(dst, uint64(stored.UnixMilli())), version...)
}

// ReadUnsent reads what AppendUnsent wrote.
func ReadUnsent(value []byte) (second uint32, stored time.Time, version []byte, ok bool) {
	const head = 4 + 8
	if len(value) < head+1+4 {
		return 0, stored, nil, false
	}
	stored = time.UnixMilli(int64(binary.BigEndian.Uint64(value[4:])))
	return binary.BigEndian.Uint32(value), stored, value[head:], true
}

// Actor returns the key of who made a version in a second; names and seq are as in its own key.
func Actor(unit, second uint32, namespace, name string, seq Sequence) []byte {
	key := AppendName(AppendName(Actors(unit, second), namespace), name)
	return seq.Append(key)
}

// Actors returns the beginning of the keys of who made versions of a unit in a second.
func Actors(unit, second uint32) []byte {
	return binary.BigEndian.AppendUint32(InUnit(make([]byte, 0, 64), SpaceActor, unit), second)
}
