package resource

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Shard is the share of one process of several that split the objects between them. The zero Shard
// has all.
//
// Objects are split by their names, so that one that is made again under its name stays where it
// was, behind the delete of the one before. The split is a jump consistent hash: where the count
// grows, objects move to the new shards only.
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

// jump is the bucket of a hash among count: Lamping and Veach, A Fast, Minimal Memory, Consistent
// Hash Algorithm (2014).
func jump(hash uint64, count int) int {
	bucket, next := int64(-1), int64(0)
	for next < int64(count) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(int64(1)<<31) / float64(hash>>33+1)))
	}
	return int(bucket)
}
