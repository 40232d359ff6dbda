package verify

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"strconv"
	"strings"
)

// ringSize is how many of an object's newest events are remembered.
const ringSize = 4

// object is what is kept of an object. There are as many as the stream has names, so its size
// counts.
type object struct {
	// The newest events of the stage, the newest first. data and managers are 0 where they can't be
	// compared.
	versions [ringSize]uint64
	ids      [ringSize]uint32
	data     [ringSize]uint32
	managers [ringSize]uint16

	uid uint64 // its hash
	stage
	time     uint32 // seconds since 1970: the latest of the events of the uid in the stage
	name     uint32 // place in names
	unit     uint32
	lane     uint32
	round    uint16 // of the unit's snapshots, when it was last seen
	suffixes uint8  // of the newest events, suffixBits each
	count    uint8  // of the newest events that are remembered
	alive    bool
	// listed is set while the cluster is compared: the API server has it.
	listed bool
}

// orderOf returns the order of a remembered event; 0 is the newest.
func (o *object) orderOf(i int) order {
	return order{o.versions[i], o.stage, suffixes(o.suffixes>>(i*suffixBits)) & (1<<suffixBits - 1)}
}

func (o *object) newest() order { return o.orderOf(0) }

// push remembers a newer event.
func (o *object) push(s *subject) {
	if s.order.stage != o.stage {
		o.stage, o.count = s.order.stage, 0
	}
	copy(o.versions[1:], o.versions[:])
	copy(o.ids[1:], o.ids[:])
	copy(o.data[1:], o.data[:])
	copy(o.managers[1:], o.managers[:])
	o.versions[0], o.ids[0], o.data[0], o.managers[0] = s.order.version, s.id, s.data, s.manager
	o.suffixes = o.suffixes<<suffixBits | uint8(s.order.suffixes)
	o.count = min(o.count+1, ringSize)
}

// find returns the number of a remembered event, -1 for none. A delete is known by its id alone:
// found by a list, it is of an earlier version than the one that the watch reported.
func (o *object) find(at order, id uint32) int {
	for i := range int(o.count) {
		if has := o.orderOf(i); o.ids[i] == id && (has == at || has.suffixes&at.suffixes&deletedSuffix != 0) {
			return i
		}
	}
	return -1
}

// isBeyond reports whether an event is older than what is remembered.
func (o *object) isBeyond(at order) bool {
	return at.stage.compare(o.stage) < 0 || o.count == ringSize && at.compare(o.orderOf(ringSize-1)) < 0
}

// Sizes of the parts in which memory is taken, so that growing copies nothing.
const (
	slabObjects = 1024
	namesShift  = 16
	namesBytes  = 1 << namesShift
)

// objects are all objects of a stream.
type objects struct {
	seed  maphash.Seed
	index map[uint64]uint32 // by hash of unit and key
	slabs [][]object
	count uint32
	names [][]byte
}

func newObjects() objects {
	return objects{seed: maphash.MakeSeed(), index: map[uint64]uint32{}}
}

// hash is of texts that others have chosen: its seed is random.
func (t *objects) hash(text string) uint64 { return maphash.String(t.seed, text) }

// key of an object of a unit.
func (t *objects) key(unit uint32, name string) uint64 {
	return t.hash(name) ^ uint64(unit+1)*0x9e3779b97f4a7c15
}

// at returns the object with a number.
func (t *objects) at(number uint32) *object {
	return &t.slabs[number/slabObjects][number%slabObjects]
}

// find returns the number of an object.
func (t *objects) find(unit uint32, name string) (number uint32, found bool) {
	number, found = t.index[t.key(unit, name)]
	return number, found
}

// add makes an object of a name that is not known.
func (t *objects) add(unit uint32, name string) (number uint32) {
	if t.count%slabObjects == 0 {
		t.slabs = append(t.slabs, make([]object, slabObjects))
	}
	number = t.count
	t.count++
	t.index[t.key(unit, name)] = number
	o := t.at(number)
	o.unit, o.name = unit, t.keep(name)
	return number
}

// keep keeps a name and gives its place.
func (t *objects) keep(name string) uint32 {
	name = name[:min(len(name), 1<<10)] // longer than any in Kubernetes
	last := len(t.names) - 1
	need := binary.MaxVarintLen32 + len(name)
	if last < 0 || len(t.names[last])+need > namesBytes {
		t.names = append(t.names, make([]byte, 0, namesBytes))
		last++
	}
	at := len(t.names[last])
	t.names[last] = append(binary.AppendUvarint(t.names[last], uint64(len(name))), name...)
	return uint32(last<<namesShift | at)
}

// nameOf returns an object's name, as "shop/web".
func (t *objects) nameOf(o *object) string {
	chunk := t.names[o.name>>namesShift][o.name%namesBytes:]
	size, n := binary.Uvarint(chunk)
	return string(chunk[n : n+int(size)])
}

// nameIn returns a key without the resource, which the unit has: "shop/web" of
// "deployments.apps/shop/web".
func nameIn(key string) string {
	_, name, found := strings.Cut(key, "/")
	if !found {
		return key
	}
	return name
}

// order is where an event comes among all events of its object, read from its sequence.
type order struct {
	version uint64
	stage
	suffixes suffixes
}

// stage is a part of an object's events in which versions ascend.
type stage struct {
	era uint32 // counts how often versions began again
	// entered is the version of the Namespace with which it came into a selection again.
	entered uint64
}

func (s stage) compare(other stage) int {
	return cmp.Or(cmp.Compare(s.era, other.era), cmp.Compare(s.entered, other.entered))
}

// suffixes are what a sequence has behind the version.
type suffixes uint8

const (
	deletedSuffix suffixes = 1 << iota
	suffixBits             = 1
)

// parseOrder reads a sequence, as "00000000.00000000000000048213.deleted". It reports false for one
// whose version is no number: such sequences are not compared.
func parseOrder(sequence string) (o order, ok bool) {
	era, rest, found := strings.Cut(sequence, ".")
	n, err := strconv.ParseUint(era, 10, 32)
	if !found || err != nil {
		return order{}, false
	}
	o.era = uint32(n)
	if entered, again := strings.CutPrefix(rest, "entered."); again {
		entered, rest, _ = strings.Cut(entered, ".")
		if o.entered, err = strconv.ParseUint(entered, 10, 64); err != nil {
			return order{}, false
		}
	}
	version, suffix, _ := strings.Cut(rest, ".")
	if o.version, err = strconv.ParseUint(version, 10, 64); err != nil {
		return order{}, false
	}
	switch suffix {
	case "":
		return o, true
	case "deleted":
		o.suffixes |= deletedSuffix
		return o, true
	}
	return order{}, false
}

// compare is negative when o is before other.
func (o order) compare(other order) int {
	return cmp.Or(o.compareVersions(other), cmp.Compare(o.suffixes, other.suffixes))
}

// compareVersions leaves out what comes behind the plain version.
func (o order) compareVersions(other order) int {
	return cmp.Or(o.stage.compare(other.stage), cmp.Compare(o.version, other.version))
}

// at is another version in the same stage.
func (o order) at(version uint64) order {
	return order{version: version, stage: o.stage}
}
