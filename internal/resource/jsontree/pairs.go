package jsontree

import "iter"

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
	rest := table{doc: a.doc}
	for ; hasOld; hasOld = a.Next() {
		rest.add(a)
	}
	for ; hasNew; hasNew = b.Next() {
		pair := Pair{Name: b.Name(), New: b.Value()}
		if m := rest.find(b.name); m != nil {
			pair.Old, m.found = rest.value(m), true
		}
		if !yield(pair) {
			return
		}
	}
	for i := range rest.members {
		m := &rest.members[i]
		if !m.found && !yield(Pair{Name: unquote(rest.name(m)), Old: rest.value(m)}) {
			return
		}
	}
}
