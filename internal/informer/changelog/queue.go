package changelog

import "slices"

// queue is a FIFO that uses its memory again.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) len() int { return len(q.items) - q.head }

// at is the i-th item.
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

// live are all items.
func (q *queue[T]) live() []T { return q.items[q.head:] }

// remove takes the i-th item out.
func (q *queue[T]) remove(i int) { q.items = slices.Delete(q.items, q.head+i, q.head+i+1) }

// drop takes the first n items out.
func (q *queue[T]) drop(n int) {
	clear(q.items[q.head : q.head+n])
	q.head += n
	if live := q.len(); live <= q.head { // copied once for each item that was dropped, at most
		copy(q.items, q.items[q.head:])
		clear(q.items[live:])
		q.items, q.head = q.items[:live], 0
	}
}

// filter keeps some items.
func (q *queue[T]) filter(keep func(*T) bool) {
	kept := q.items[:0]
	for i := range q.live() {
		if item := q.at(i); keep(item) {
			kept = append(kept, *item)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}
