package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// An index is one key of the database for each value of an object (spaceEntry). Beside them are the
// values of each object that has any (spaceValues), so that an update finds the entries that it has
// to delete. In memory an object has a hash of its values: an update that changes none reads and
// writes nothing.

// Indexes are the indexes of one Indexer.
type Indexes struct {
	ix *Indexer
	// set is guarded by Indexer.mu. Only the committer replaces it.
	set  *indexSet
	seed maphash.Seed
	// changed are the objects whose values commits since the last successful one have looked up;
	// built is set to what such a commit has built. Owned by the committer.
	changed map[resource.Key]*changedValues
	built   *indexSet
	scratch []string
}

// indexSet are the indexes as the database has them. It is replaced as a whole.
type indexSet struct {
	// Next is the number that was given last. None is given twice, so entries of an index that is
	// gone are not taken for those of another.
	Next uint32
	// Cursor is the key up to which the incomplete indexes were built.
	Cursor  resource.Key
	Indexes []savedIndex
}

// savedIndex is one index.
type savedIndex struct {
	Name, Definition string
	Number           uint32
	Complete         bool // all objects are in it

	values func(dst []string, obj *resource.Object) []string
}

// changedValues are the values of an object in commits since the last successful one.
type changedValues struct {
	// possible are what the database may have: the committed values, and those of commits that
	// failed, which may be written yet.
	possible [][]byte
	sum      uint64 // of the values after the commit
}

func newIndexes(ix *Indexer) Indexes {
	return Indexes{
		ix: ix, set: &indexSet{}, seed: maphash.MakeSeed(),
		changed: map[resource.Key]*changedValues{},
	}
}

// find returns the index of a name, nil for none.
func (s *indexSet) find(name string) *savedIndex {
	i := slices.IndexFunc(s.Indexes, func(saved savedIndex) bool { return saved.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Indexes[i]
}

// isComplete reports whether all objects are in all indexes.
func (s *indexSet) isComplete() bool {
	return !slices.ContainsFunc(s.Indexes, func(saved savedIndex) bool { return !saved.Complete })
}

// prefix is that of the index's entries.
func (s *savedIndex) prefix(id uint32) []byte {
	return binary.BigEndian.AppendUint32(prefix(spaceEntry, id), s.Number)
}

// entryPrefix is that of the entries of one value.
func (s *savedIndex) entryPrefix(id uint32, value string) []byte {
	return append(binary.AppendUvarint(s.prefix(id), uint64(len(value))), value...)
}

// splitEntry takes the key of an entry, behind the prefix of its index, apart.
func splitEntry(tail []byte) (value string, key resource.Key, err error) {
	size, n := binary.Uvarint(tail)
	if n <= 0 || size > uint64(len(tail)-n) {
		return "", "", errValues
	}
	tail = tail[n:]
	return string(tail[:size]), resource.Key(tail[size:]), nil
}

// maxValue is how long a value may be to be stored as it is. Kubernetes allows no longer names.
const maxValue = 512

// storedValue returns a value as it is stored: a longer one as its hash.
func storedValue(value string) string {
	if len(value) <= maxValue {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// appendValues encodes the values of an object, nil for a deleted one: the last number of an index
// that there was; for each value the number of its index, the length, the value. Without values it
// is empty.
func (x *Indexes) appendValues(dst []byte, obj *resource.Object) []byte {
	if obj == nil {
		return dst
	}
	begin := len(dst)
	dst = binary.AppendUvarint(dst, uint64(x.set.Next))
	none := len(dst)
	for i := range x.set.Indexes {
		index := &x.set.Indexes[i]
		x.scratch = index.values(x.scratch[:0], obj)
		for _, value := range x.scratch {
			value = storedValue(value)
			dst = binary.AppendUvarint(dst, uint64(index.Number))
			dst = binary.AppendUvarint(dst, uint64(len(value)))
			dst = append(dst, value...)
		}
	}
	clear(x.scratch[:cap(x.scratch)]) // they may share the object's memory
	if len(dst) == none {
		return dst[:begin]
	}
	return dst
}

var errValues = errors.New("state database: the values of an index do not parse; the directory is " +
	"damaged: restore it from a copy, or reset the informer")

// splitValues calls yield with what appendValues has encoded.
func splitValues(encoded []byte, yield func(number uint32, sizedValue []byte)) error {
	if len(encoded) == 0 {
		return nil
	}
	_, n := binary.Uvarint(encoded)
	for rest := encoded; n > 0; {
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		var number, size uint64
		var sized int
		if number, n = binary.Uvarint(rest); n <= 0 {
			break
		}
		rest = rest[n:]
		if size, sized = binary.Uvarint(rest); sized <= 0 || size > uint64(len(rest)-sized) {
			break
		}
		n = sized + int(size)
		yield(uint32(number), rest[:n])
	}
	return errValues
}

// noValues is the sum of an object without values.
const noValues = 1

// sum is what the memory has of encoded values; 0 stands for unknown ones.
func (x *Indexes) sum(encoded []byte) uint64 {
	if len(encoded) == 0 {
		return noValues
	}
	return max(maphash.Bytes(x.seed, encoded), noValues+1)
}

// indexObject brings the entries of an object in line with a state, which is nil when deleted.
func (b *Batch) indexObject(ix *Indexer, key resource.Key, k *cacheLookup, obj *resource.Object) {
	x := &ix.indexes
	if len(x.set.Indexes) == 0 {
		return
	}
	b.values = x.appendValues(b.values[:0], obj)
	sum := x.sum(b.values)
	c, isRetried := x.changed[key]
	if !isRetried {
		if k.find(ix, key); k.ok && k.values == sum {
			return
		}
		before, err := x.committedValues(key, k)
		b.Fail(err)
		c = &changedValues{possible: [][]byte{before}}
		x.changed[key] = c
		if c.sum = sum; bytes.Equal(before, b.values) {
			return
		}
	}
	for _, possible := range c.possible {
		b.Fail(b.dropEntries(ix.id, key, possible, b.values))
	}
	if c.sum = sum; len(b.values) == 0 {
		b.Fail(b.batch.Delete(b.keyOf(spaceValues, ix, key), nil))
		return
	}
	b.put(b.keyOf(spaceValues, ix, key), b.values)
	b.Fail(splitValues(b.values, func(number uint32, value []byte) {
		if !isRetried && hasValue(c.possible[0], number, value) {
			return
		}
		b.put(b.entryKey(ix.id, number, value, key), nil)
	}))
	// a failed commit may be written yet: so the next one writes its own result in any case
	c.possible = append(c.possible, bytes.Clone(b.values))
}

// committedValues returns the values of an object as of the last commit.
func (x *Indexes) committedValues(key resource.Key, k *cacheLookup) ([]byte, error) {
	if k.isNew || k.ok && k.values == noValues {
		return nil, nil
	}
	return x.ix.db.state.Get(objectKey(spaceValues, x.ix.id, key))
}

// fewValues is how long encoded values are at most in which hasValue looks.
const fewValues = 1 << 10

// hasValue reports whether a value is among a few encoded ones; false where they are many.
func hasValue(encoded []byte, number uint32, sizedValue []byte) (found bool) {
	if len(encoded) > fewValues {
		return false
	}
	_ = splitValues(encoded, func(n uint32, value []byte) { // whoever drops them finds the error
		found = found || n == number && bytes.Equal(value, sizedValue)
	})
	return found
}

// dropEntries deletes the entries of an object that had encoded values, but for those that it has
// again.
func (b *Batch) dropEntries(id uint32, key resource.Key, had, has []byte) error {
	return splitValues(had, func(number uint32, value []byte) {
		if hasValue(has, number, value) {
			return
		}
		b.Fail(b.batch.Delete(b.entryKey(id, number, value, key), nil))
	})
}

// entryKey is the key of an entry in the batch's own memory. The value comes with its length.
func (b *Batch) entryKey(id, number uint32, sizedValue []byte, key resource.Key) []byte {
	b.key = binary.BigEndian.AppendUint32(appendPrefix(b.key[:0], spaceEntry, id), number)
	b.key = append(append(b.key, sizedValue...), key...)
	return b.key
}

// committedLocked takes over what a successful commit has written.
func (x *Indexes) committedLocked() {
	for key, c := range x.changed {
		x.ix.records.setValues(key, c.sum)
	}
	clear(x.changed)
	if x.built != nil {
		x.set, x.built = x.built, nil
	}
}

// An index that is new is built in pieces, one in each commit.
const (
	buildAtOnce = 1000    // objects
	buildBytes  = 4 << 20 // of bodies
)

// BuildIndexes adds the next objects to the indexes that are not complete. It comes before the
// Settle calls of its batch: they are of later states.
func (b *Batch) BuildIndexes(ix *Indexer) {
	before := ix.indexes.set
	if ix.indexes.built = nil; before.isComplete() {
		return
	}
	built := &indexSet{
		Next: before.Next, Cursor: before.Cursor, Indexes: slices.Clone(before.Indexes),
	}
	isEnd, err := b.buildPiece(ix, &built.Cursor)
	if err != nil {
		b.Fail(err)
		return
	}
	for i := range built.Indexes {
		built.Indexes[i].Complete = built.Indexes[i].Complete || isEnd
	}
	if isEnd || built.Cursor != before.Cursor {
		ix.indexes.built = built
		b.putIndexes(ix, built)
	}
}

// buildPiece indexes objects behind a cursor, and moves it. It stops before an object whose body is
// of an earlier version than its record, or can't be read: with the next body that is written, the
// next piece has it.
func (b *Batch) buildPiece(ix *Indexer, cursor *resource.Key) (isEnd bool, err error) {
	it, err := ix.iterator(spaceRecord)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, statedb.Wrap(it.Close())) }()
	size := 0
	it.SeekGE(append(objectKey(spaceRecord, ix.id, *cursor), 0))
	for n := 0; it.Valid(); it.Next() {
		if n++; n > buildAtOnce || size > buildBytes {
			return false, nil
		}
		key := resource.Key(it.Key()[len(prefix(spaceRecord, 0)):])
		rec, err := parseRecord(it.Value())
		if err != nil {
			return false, nil
		}
		if !rec.Deleted {
			bytes, isBuilt := b.buildObject(ix, key, rec.Version)
			if size += bytes; !isBuilt {
				return false, nil
			}
		}
		*cursor = key
	}
	return it.Error() == nil, statedb.Wrap(it.Error())
}

// buildObject indexes an object from its stored body, and reports whether it is indexed.
func (b *Batch) buildObject(
	ix *Indexer, key resource.Key, version resource.Version,
) (bytes int, isBuilt bool) {
	obj, err := ix.settledObject(key)
	if err == nil && obj != nil && obj.Version == version {
		b.indexObject(ix, key, &cacheLookup{}, obj)
		return len(obj.Raw), true
	}
	// Its state may have been settled since the index was added.
	values, err := ix.db.state.Get(objectKey(spaceValues, ix.id, key))
	last, n := binary.Uvarint(values)
	return 0, err == nil && n > 0 && last == uint64(ix.indexes.set.Next)
}

// savedIndexes reads the indexes that the database has.
func (ix *Indexer) savedIndexes() (*indexSet, error) {
	set := &indexSet{}
	value, err := ix.db.state.Get(prefix(spaceIndexes, ix.id))
	if err != nil || value == nil {
		return set, err
	}
	if err := json.Unmarshal(value, set); err != nil {
		return nil, fmt.Errorf("state database: the list of indexes does not parse; the directory is "+
			"damaged: restore it from a copy, or reset the informer: %w", err)
	}
	return set, nil
}

// putIndexes writes the list of indexes.
func (b *Batch) putIndexes(ix *Indexer, set *indexSet) {
	b.putJSON(prefix(spaceIndexes, ix.id), set)
}

// saveIndexes writes the list of indexes, if it is another than before, and drops the entries of
// those that are gone.
func (ix *Indexer) saveIndexes(before, set *indexSet) error {
	b := ix.db.NewBatch()
	isOther := set.Next != before.Next
	for i := range before.Indexes {
		old := &before.Indexes[i]
		if current := set.find(old.Name); current == nil || current.Number != old.Number {
			b.dropRange(old.prefix(ix.id))
			isOther = true
		}
	}
	if !isOther {
		return b.batch.Close()
	}
	if len(set.Indexes) == 0 {
		b.dropRange(prefix(spaceValues, ix.id))
	}
	// An earlier commit that is still to be written may change the same keys.
	b.Fail(ix.db.state.Unavailable())
	b.putIndexes(ix, set)
	return b.Commit()
}

// restartIndexes removes all entries, so that the indexes are built again. Nothing else uses the
// Indexer yet.
func (ix *Indexer) restartIndexes() error {
	set := &indexSet{Next: ix.indexes.set.Next, Indexes: slices.Clone(ix.indexes.set.Indexes)}
	for i := range set.Indexes {
		set.Indexes[i].Complete = false
	}
	b := ix.db.NewBatch()
	b.dropRange(prefix(spaceEntry, ix.id))
	b.dropRange(prefix(spaceValues, ix.id))
	b.putIndexes(ix, set)
	if err := b.Commit(); err != nil {
		return err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.indexes.set = set
	return nil
}

// dropRange deletes all keys that begin with begin.
func (b *Batch) dropRange(begin []byte) {
	b.Fail(b.batch.DeleteRange(begin, after(begin), nil))
}
