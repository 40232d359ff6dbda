package resource

import "slices"

// smallSlice is a list whose first elements need no allocation: it stays on the stack together with
// what holds it, which a slice of a local array does not.
type smallSlice[T any] struct {
	n     int
	first [2]T
	more  []T
}

func (l *smallSlice[T]) add(v T) {
	if l.n < len(l.first) {
		l.first[l.n] = v
	} else {
		if len(l.more) == cap(l.more) { // append grows a long list by a quarter, and copies it often
			l.more = slices.Grow(l.more, max(len(l.more), 4))
		}
		l.more = append(l.more, v)
	}
	l.n++
}

// clear empties the list.
func (l *smallSlice[T]) clear() { l.n, l.more = 0, l.more[:0] }

func (l *smallSlice[T]) at(i int) *T {
	if i < len(l.first) {
		return &l.first[i]
	}
	return &l.more[i-len(l.first)]
}
