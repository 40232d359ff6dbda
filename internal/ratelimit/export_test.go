package ratelimit

// Len is how many keys wait to be handed out. Delayed keys, and those with a worker, are not
// counted.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready.len
}
