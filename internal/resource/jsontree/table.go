package jsontree

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
)

// table finds members of an object by their names. It has offsets and no pointers: an object may
// have a hundred thousand members, all renamed by each update, and a map of strings took half of
// the time in which such an update was compared.
type table struct {
	doc     *document
	members []place  // in their order
	next    int      // behind the last one that was found
	slots   []uint32 // a place in members + 1 at the hash of its name; nil before it is needed
}

// place is where a member is in its document.
type place struct {
	name     uint32 // offset of its name
	at, node uint32 // as those of a Value
	found    bool   // for the table's user
}

// seed of all tables. Names come from tenants, who must not know which ones collide.
var seed = maphash.MakeSeed()

// add appends the current member of a walker over the table's document.
func (t *table) add(w *Walker) {
	if n := len(t.members); n == cap(t.members) { // append grows by a quarter, and copies often
		t.members = slices.Grow(t.members, max(n, fewMembers))
	}
	t.members = append(t.members, place{
		name: uint32(w.nameAt), at: w.value.at, node: w.value.node,
	})
}

// name is in quotes.
func (t *table) name(m *place) []byte {
	return t.doc.raw[m.name:stringEnd(t.doc.raw, int(m.name)+1)]
}

func (t *table) value(m *place) Value { return t.doc.value(int(m.at), m.node) }

// find gives the member of a name, which is in quotes; nil when there is none. Members are found
// fastest in their order, which two versions of an object mostly share.
func (t *table) find(quoted []byte) *place {
	if t.next >= len(t.members) || !sameName(t.name(&t.members[t.next]), quoted) {
		found := t.search(quoted)
		if found < 0 {
			return nil
		}
		t.next = found
	}
	t.next++
	return &t.members[t.next-1]
}

func (t *table) search(quoted []byte) int {
	if len(t.members) <= fewMembers {
		for i := range t.members {
			if sameName(t.name(&t.members[i]), quoted) {
				return i
			}
		}
		return -1
	}
	if t.slots == nil {
		t.fill()
	}
	for at := t.slot(quoted); t.slots[at] != 0; at = t.after(at) {
		if i := int(t.slots[at] - 1); sameName(t.name(&t.members[i]), quoted) {
			return i
		}
	}
	return -1
}

// fill puts the last member in first: of two with one name the last is found, as in a map.
func (t *table) fill() {
	const perMember = 2
	t.slots = make([]uint32, 1<<bits.Len(uint(perMember*len(t.members))))
	for i := len(t.members) - 1; i >= 0; i-- {
		at := t.slot(t.name(&t.members[i]))
		for t.slots[at] != 0 {
			at = t.after(at)
		}
		t.slots[at] = uint32(i + 1)
	}
}

func (t *table) slot(quoted []byte) int {
	hash := maphash.String(seed, unquote(quoted))
	return int(hash & uint64(len(t.slots)-1))
}

func (t *table) after(slot int) int { return (slot + 1) & (len(t.slots) - 1) }

// sameName reports whether two strings, which are in quotes, have one text.
func sameName(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	escaped := bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0
	return escaped && unquote(a) == unquote(b)
}
