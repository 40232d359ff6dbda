package resource

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Relist says why everything that is known of an informer's objects is about to be replaced by a
// list.
type Relist struct {
	Kind RelistKind
	// Reason of the gap, a short constant: "expired" (410), "rewound" (the server went back in
	// time), "unreadable" (a frame that could not be understood), "dropped" (a full log dropped its
	// oldest).
	Reason string
	// From is the last version known before the gap; To is a version of the server, no older than
	// which the list is.
	From, To Version
	// Loss distinguishes one loss of a sink's destination (ReasonLost) from another; 0 for a list.
	Loss int64 `json:",omitempty"`
	// Quiet is set where the watch from From was open until right before, and brought nothing. Then
	// nothing is missing unless the list shows something else.
	Quiet bool `json:",omitempty"`

	// Incomplete is set, at the end of the list, when it has an item that nobody can identify. What
	// the list does not hold may be that object, so nothing may be taken for gone.
	Incomplete bool

	// Namespaces are those that are selected from here on, each with the version of the Namespace
	// in which it was found to be. nil where no namespaces are selected: all are wanted.
	Namespaces map[string]Version
	// Namespace is the only one that is replaced, where the list is Partial.
	Namespace string
	// Entered is the version of the Namespace in which it was found to be selected.
	Entered Version
}

// RelistKind is which list follows.
type RelistKind uint8

const (
	// RelistGap lists everything: versions are missing.
	RelistGap RelistKind = iota
	// RelistInitial lists everything without a position to resume from: the first snapshot, and no
	// gap.
	RelistInitial
	// RelistRewound lists everything, since the server's versions went back: versions from before
	// can't be compared with those after.
	RelistRewound
	// RelistInitialRewound is a first snapshot while which the server's versions went back.
	RelistInitialRewound
	// RelistSelection lists nothing: it names Namespaces, and what is known stays as it is.
	RelistSelection
	// RelistEnters lists one Namespace, which comes into the selection.
	RelistEnters
	// RelistLeaves lists nothing of one Namespace, which is not selected any more.
	RelistLeaves
	// RelistDeleted is RelistLeaves of a namespace that does not even exist.
	RelistDeleted
)

var relistKinds = [...]string{
	"gap", "initial", "rewound", "initial-rewound", "selection", "enters", "leaves", "deleted",
}

func (k RelistKind) String() string {
	if int(k) < len(relistKinds) {
		return relistKinds[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MarshalText is for JSON.
func (k RelistKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is for JSON.
func (k *RelistKind) UnmarshalText(text []byte) error {
	n := slices.Index(relistKinds[:], string(text))
	if n < 0 {
		return fmt.Errorf("%q is no kind of a list", text)
	}
	*k = RelistKind(n)
	return nil
}

// Initial reports whether this is the first snapshot.
func (r *Relist) Initial() bool {
	return r.Kind == RelistInitial || r.Kind == RelistInitialRewound
}

// Rewound reports whether versions from before can't be compared with those after.
func (r *Relist) Rewound() bool {
	return r.Kind == RelistRewound || r.Kind == RelistInitialRewound
}

// Partial reports whether only one namespace is replaced.
func (r *Relist) Partial() bool {
	return r != nil && (r.Kind == RelistEnters || r.Leaves())
}

// Leaves reports whether one namespace is not selected any more.
func (r *Relist) Leaves() bool { return r.Kind == RelistLeaves || r.Kind == RelistDeleted }

// Rewind makes it a list after the server's versions went back.
func (r *Relist) Rewind() {
	if r.Reason = ReasonRewound; r.Initial() {
		r.Kind = RelistInitialRewound
	} else {
		r.Kind = RelistRewound
	}
}

// Reasons of a gap.
const (
	ReasonExpired    = "expired"
	ReasonRewound    = "rewound"
	ReasonUnreadable = "unreadable"
	ReasonDropped    = "dropped"
	ReasonForgotten  = "forgotten"
	// ReasonLost is of the one gap behind which no list follows, beside that of what was dropped.
	ReasonLost = "lost"
)

// NamespaceState says where a namespace stands that has to do with a selection of namespaces.
type NamespaceState uint8

// The states. A namespace that never was selected has none.
const (
	// NamespaceOut was selected, and every listener has the deletes of its objects. It is
	// remembered, because its objects may come again, in a version that was reported before.
	NamespaceOut NamespaceState = iota + 1
	// NamespaceEntering is selected, and not all its objects were reported yet.
	NamespaceEntering
	// NamespaceIn is selected and in sync.
	NamespaceIn
	// NamespaceLeaving is not selected, and a listener may not have the deletes of its objects.
	NamespaceLeaving
)

// Selected reports whether changes of the namespace's objects are wanted.
func (s NamespaceState) Selected() bool { return s == NamespaceEntering || s == NamespaceIn }

// Shard is the share of one process of several that split the objects between them. The zero Shard
// has all.
//
// Objects are split by their names, so that one that is made again under its name stays where it
// was, behind the delete of the one before. The split is a jump consistent hash: where the count
// grows, objects move to the new shards only. The API server's own sharded watch
// (ShardedListAndWatch, alpha in 1.36) splits by uid, which parts the lives of a name, or by
// namespace, which parts unevenly.
type Shard struct {
	Index int // from 0
	Count int // 0 and 1: all objects are of shard 0
}

// ParseShard reads "0/3".
func ParseShard(text string) (s Shard, err error) {
	index, count, found := strings.Cut(text, "/")
	if found {
		s.Index, err = strconv.Atoi(index)
	}
	if found && err == nil {
		s.Count, err = strconv.Atoi(count)
	}
	if !found || err != nil || s.Count < 1 || s.Index < 0 || s.Index >= s.Count {
		return Shard{}, fmt.Errorf("must be a number from 0 and how many there are, such as 0/3; got %q",
			text)
	}
	return s, nil
}

func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, max(s.Count, 1)) }

// All reports whether the shard has all objects.
func (s Shard) All() bool { return s.Count <= 1 }

// Has reports whether an object of a type is of the shard.
func (s Shard) Has(t Type, namespace, name string) bool {
	if s.All() {
		return true
	}
	var d xxhash.Digest
	d.Reset()
	for _, part := range []string{t.Group, "/", t.Resource, "/", namespace, "/", name} {
		_, _ = d.WriteString(part) // never fails
	}
	return jump(d.Sum64(), s.Count) == s.Index
}

// Within reports whether everything that the shard has was of another one, too: that of the same
// number, when there were fewer.
func (s Shard) Within(before Shard) bool {
	return s.Index == before.Index && cmp.Compare(max(s.Count, 1), max(before.Count, 1)) >= 0
}

// jump returns the bucket of a hash among count: Lamping and Veach, A Fast, Minimal Memory,
// Consistent Hash Algorithm (2014).
func jump(hash uint64, count int) int {
	bucket, next := int64(-1), int64(0)
	for next < int64(count) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(int64(1)<<31) / float64(hash>>33+1)))
	}
	return int(bucket)
}
