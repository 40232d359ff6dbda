package resource

import (
	"bytes"
	"maps"
	"math/bits"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Setter finds who has set what differs between two versions of an object that follow each other:
// in the entry of a field manager, the API server notes which values it has set last. The Setter
// owns all of them. Only entries that may be of the newest write are asked, those that have fields
// (Writes): an older one can't be the writer's, whose time would be new.
//
// It reports whether there is exactly one. isSet is false when nothing was set: then the write has
// only removed values, or has asked for a delete.
func (o *Object) Setter(before *Object) (by Entry, isFound, isSet bool) {
	var entries []Entry
	var trees [][]byte
	for e := range o.Writes.all {
		if e.fields != "" {
			entries, trees = append(entries, e), append(trees, []byte(e.fields))
		}
	}
	if len(entries) > maxOwners || o.APIVersion != before.APIVersion {
		return by, false, true
	}
	c := comparison{left: 1<<len(entries) - 1, steps: maxSteps}
	c.members(&place{was: before.Raw, is: o.Raw, trees: trees, isObject: true})
	switch {
	case c.steps < 0:
		return by, false, true
	case c.isSet && bits.OnesCount64(c.left) == 1:
		return entries[bits.TrailingZeros64(c.left)], true, true
	}
	return by, false, c.isSet
}

const (
	maxOwners = 63 // bits of a comparison
	// maxSteps bounds the work for lists, whose items are found by their keys.
	maxSteps = 20_000
)

// comparison is one call of Setter.
type comparison struct {
	left  uint64 // the entries that own all values so far, as bits
	isSet bool
	steps int // how many more values are compared
}

// place is one place in both versions.
type place struct {
	was, is []byte // as JSON; was is empty where it is new
	// trees are, of each entry, what it owns from here on, as fieldsV1 has it; nil for nothing.
	trees [][]byte
	// owner: the entries that own the innermost value around this one that is owned as a whole.
	owner                uint64
	isObject, isMetadata bool // the object itself, its metadata
}

// isDone reports whether nothing more can come of the comparison.
func (c *comparison) isDone() bool {
	c.steps--
	return c.steps < 0 || c.isSet && c.left == 0
}

// changed notes who owns a value that differs.
func (c *comparison) changed(p *place) {
	owner, isParted := uint64(0), false
	for i, tree := range p.trees {
		switch {
		case string(tree) == "{}":
			owner |= 1 << i
		case tree != nil:
			isParted = true
		}
	}
	if owner != 0 {
		p.owner = owner
	}
	switch {
	case p.is[0] == '{' && p.isPartly(isParted):
		c.members(p)
	case p.is[0] == '[' && p.isPartly(isParted):
		c.items(p)
	default:
		c.isSet, c.left = true, c.left&p.owner
	}
}

// isPartly reports whether only a part of an object or list may have been set: entries own parts of
// it, or it was there before, and none owns it as a whole.
func (p *place) isPartly(isParted bool) bool {
	if len(p.was) == 0 {
		return isParted
	}
	return p.was[0] == p.is[0] && (isParted || p.owner == 0)
}

// setByServer are the members of metadata that the API server sets, and that no entry owns.
var setByServer = map[string]bool{
	"deletionGracePeriodSeconds": true, "deletionTimestamp": true, "generation": true,
	"managedFields": true, "resourceVersion": true, "selfLink": true,
}

func (c *comparison) members(p *place) {
	is, was := jsonscan.Of(p.is), memberFinder{raw: p.was}
	for is.Open('{'); is.Next('}'); {
		name := view(is.Key())
		at, value := is.KeyAt(), is.Skip()
		if was.skip(p.is[at:value.End]) {
			continue
		}
		before := was.find(name)
		if p.isMetadata && setByServer[name] || bytes.Equal(before, is.Bytes(value)) {
			continue
		}
		if c.isDone() {
			return
		}
		c.changed(&place{
			was: before, is: is.Bytes(value), trees: below(p.trees, "f:", name), owner: p.owner,
			isMetadata: p.isObject && name == "metadata",
		})
	}
}

// below returns what entries own of a member.
func below(trees [][]byte, prefix, name string) [][]byte {
	var found [][]byte // most changes are of what most entries own nothing of
	for i, tree := range trees {
		for field, owned := range Members(tree) {
			if rest, ok := strings.CutPrefix(field, prefix); ok && rest == name {
				if found == nil {
					found = make([][]byte, len(trees))
				}
				found[i] = owned
				break
			}
		}
	}
	return found
}

// memberFinder finds the members of a version, which the next version has in the same order: but
// for some, and but for a server that has no order.
type memberFinder struct {
	raw   []byte
	next  int // where the next member begins in raw, 0 for the first
	index map[string][]byte
}

// skip goes over the next member, if it is this one.
func (f *memberFinder) skip(member []byte) bool {
	next := max(f.next, 1)
	end := next + len(member)
	isNext := f.index == nil && end < len(f.raw) && (f.raw[end] == ',' || f.raw[end] == '}') &&
		bytes.Equal(f.raw[next:end], member)
	if isNext {
		f.next = end + 1
	}
	return isNext
}

// find returns the value of a member, nil for none.
func (f *memberFinder) find(name string) []byte {
	if next := max(f.next, 1); f.index == nil && next < len(f.raw) && f.raw[next] == '"' {
		s := jsonscan.Of(f.raw[next:])
		if key := s.Quoted(); string(s.Text(key)) == name && s.Consume(':') {
			value := s.Skip()
			f.next = next + value.End + 1
			return s.Bytes(value)
		}
	}
	if f.index == nil {
		f.index = maps.Collect(Members(f.raw))
	}
	return f.index[name]
}

// items compares a list of which entries own parts: single items, by the values of some of their
// members, by their own value, or by their number.
func (c *comparison) items(p *place) {
	was, is := itemsOf(p.was), itemsOf(p.is)
	for n, item := range is {
		if n < len(was) && bytes.Equal(was[n], item) {
			continue
		}
		next := place{is: item, owner: p.owner, trees: make([][]byte, len(p.trees))}
		var isSame func(other []byte) bool
		for i, tree := range p.trees {
			for key, owned := range Members(tree) {
				if c.isDone() {
					return
				}
				if same := matches(key, n, item); same != nil {
					next.trees[i], isSame = owned, same
					break
				}
			}
		}
		for m, other := range was {
			if c.isDone() {
				return
			}
			if bytes.Equal(other, item) || isSame != nil && isSame(other) {
				next.was = was[m]
				break
			}
		}
		if !bytes.Equal(next.was, item) {
			c.changed(&next)
		}
	}
}

// matches returns whether another item is the one that a key of fieldsV1 names, nil where item
// itself, the n-th of its list, is not.
func matches(key string, n int, item []byte) (same func(other []byte) bool) {
	form, value, _ := strings.Cut(key, ":")
	switch form {
	case "k":
		same = func(other []byte) bool {
			isKey := false
			for name, want := range Members([]byte(value)) {
				if isKey = sameScalar(Member(other, name), want); !isKey {
					break
				}
			}
			return isKey
		}
	case "v":
		same = func(other []byte) bool { return sameScalar(other, []byte(value)) }
	case "i":
		if value == strconv.Itoa(n) {
			return func([]byte) bool { return false }
		}
		return nil
	default:
		return nil
	}
	if !same(item) {
		return nil
	}
	return same
}

// sameScalar reports whether two JSON values are equal. Strings may be escaped differently.
func sameScalar(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 || a[0] != '"' || b[0] != '"' {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(text(a), text(b))
}

func text(quoted []byte) []byte {
	s := jsonscan.Of(quoted)
	return s.Text(s.Quoted())
}

func itemsOf(raw []byte) (items [][]byte) {
	s := jsonscan.Of(raw)
	if s.Peek() != '[' {
		return nil
	}
	for s.Open('['); s.Next(']'); {
		if at := s.Skip(); s.Err() == nil {
			items = append(items, s.Bytes(at))
		}
	}
	return items
}
