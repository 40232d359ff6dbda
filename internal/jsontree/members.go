package jsontree

import "iter"

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// Members are members of an object, in their order. They are not safe for concurrent use.
type Members struct {
	List []Member
	next int            // behind the last one that was found
	of   map[string]int // place in List by name; nil before it is needed
}

// fewMembers are found as fast without a map.
const fewMembers = 16

// Members collects the members of an object; none of any other value.
func (v Value) Members() *Members {
	m := &Members{}
	if v.IsObject() {
		for w := v.Walk(); w.Next(); {
			m.List = append(m.List, Member{w.Name(), w.Value()})
		}
	}
	return m
}

// Find is the place of a member in List, -1 when there is none. Members are found fastest in their
// order, which two versions of an object mostly share.
func (m *Members) Find(name string) int {
	if m.next >= len(m.List) || m.List[m.next].Name != name {
		found := m.search(name)
		if found < 0 {
			return -1
		}
		m.next = found
	}
	m.next++
	return m.next - 1
}

func (m *Members) search(name string) int {
	if len(m.List) <= fewMembers {
		for i := range m.List {
			if m.List[i].Name == name {
				return i
			}
		}
		return -1
	}
	if m.of == nil {
		m.of = make(map[string]int, len(m.List))
		for i := range m.List {
			m.of[m.List[i].Name] = i
		}
	}
	if i, ok := m.of[name]; ok {
		return i
	}
	return -1
}

// Pair is a member of two objects. A value that does not exist is missing in that object.
type Pair struct {
	Name     string
	Old, New Value
}

// Pairs yields the members of two objects: those of the new one in their order, then those that
// only the old one has. As long as both have the same names in the same order, nothing is
// allocated.
func Pairs(older, newer Value) iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		a, b := older.Walk(), newer.Walk()
		hasOld, hasNew := a.Next(), b.Next()
		for ; hasOld && hasNew && a.sameName(&b); hasOld, hasNew = a.Next(), b.Next() {
			if !yield(Pair{b.Name(), a.Value(), b.Value()}) {
				return
			}
		}
		unordered(&a, &b, hasOld, hasNew, yield)
	}
}

// unordered yields the rest of two objects, from the first members with different names on. The
// first name is looked up without a table: who compares stops there when the name is new.
func unordered(a, b *Walker, hasOld, hasNew bool, yield func(Pair) bool) {
	if hasOld && hasNew && !a.anyHas(b) {
		if !yield(Pair{Name: b.Name(), New: b.Value()}) {
			return
		}
		hasNew = b.Next()
	}
	var rest Members
	for ; hasOld; hasOld = a.Next() {
		rest.List = append(rest.List, Member{a.Name(), a.Value()})
	}
	found := make([]bool, len(rest.List))
	for ; hasNew; hasNew = b.Next() {
		pair := Pair{Name: b.Name(), New: b.Value()}
		if i := rest.Find(pair.Name); i >= 0 {
			pair.Old, found[i] = rest.List[i].Value, true
		}
		if !yield(pair) {
			return
		}
	}
	for i, m := range rest.List {
		if !found[i] && !yield(Pair{Name: m.Name, Old: m.Value}) {
			return
		}
	}
}
