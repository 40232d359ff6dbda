package informer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/kubebridge/bridge/internal/condition"
)

// errLogEnd is returned by read when the log was closed and the cursor is behind its last change.
var errLogEnd = errors.New("end of the change log")

// changeLog is the changes of one informer that are not settled by all, in order. Each listener reads it from its own cursor.
type changeLog struct {
	max     int // bytes
	metrics *metrics

	mu   sync.Mutex
	cond *sync.Cond // signalled when any field below changes in a way somebody waits for
	// entries are in order of their positions. Those that are settled by all (size 0) go when they are at the front, or
	// when they are most of it: one change that does not settle must not keep all later ones.
	entries []*change
	next    uint64 // position of the next change
	bytes   int
	count   int // entries that are not settled
	closed  bool
}

func newChangeLog(max int, m *metrics) *changeLog {
	l := &changeLog{max: max, metrics: m}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// append puts changes at the end. It blocks while the log is full; a batch may pass the bound by its own size.
func (l *changeLog) append(ctx context.Context, changes []*change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := condition.Wait(ctx, l.cond, func() bool { return l.bytes < l.max }); err != nil {
		return err
	}
	for _, c := range changes {
		c.position = l.next
		l.next++
		l.entries = append(l.entries, c)
		l.bytes += c.size
		l.count++
	}
	l.metrics.logBytes.Set(float64(l.bytes))
	l.metrics.logChanges.Set(float64(l.count))
	l.cond.Broadcast()
	return nil
}

// read waits for changes at or after the position and returns up to cap(buf) of them that are for the listener, with the position
// behind the last it looked at. It returns errLogEnd when none will come.
func (l *changeLog) read(ctx context.Context, from uint64, audience uint64, buf []*change) ([]*change, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		buf = buf[:0]
		first, _ := slices.BinarySearchFunc(l.entries, from, func(c *change, at uint64) int { return cmp.Compare(c.position, at) })
		for _, c := range l.entries[first:] {
			if len(buf) == cap(buf) {
				break
			}
			from = c.position + 1
			if c.size > 0 && c.audience&audience != 0 {
				buf = append(buf, c)
			}
		}
		if len(buf) > 0 {
			return buf, from, nil
		}
		from = l.next
		if l.closed {
			return nil, from, errLogEnd
		}
		if err := condition.Wait(ctx, l.cond, func() bool { return l.closed || l.next > from }); err != nil {
			return nil, from, err
		}
	}
}

// release takes changes that are settled by all out of the log.
func (l *changeLog) release(changes []*change) {
	if len(changes) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		l.bytes -= c.size
		l.count--
		c.size = 0
		c.Object = nil // nobody reads a settled change: don't keep its object while it waits to be dropped
	}
	l.trimLocked()
	l.metrics.logBytes.Set(float64(l.bytes))
	l.metrics.logChanges.Set(float64(l.count))
	l.cond.Broadcast()
}

// trimLocked drops settled entries.
func (l *changeLog) trimLocked() {
	if l.count == 0 {
		clear(l.entries)
		l.entries = l.entries[:0]
		return
	}
	front := 0
	for l.entries[front].size == 0 {
		l.entries[front] = nil
		front++
	}
	l.entries = l.entries[front:]
	if len(l.entries) > 1024 && l.count < len(l.entries)/2 {
		l.entries = slices.DeleteFunc(l.entries, func(c *change) bool { return c.size == 0 })
	}
}

// waitSettled waits until nothing in the log is unsettled.
func (l *changeLog) waitSettled(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return condition.Wait(ctx, l.cond, func() bool { return l.count == 0 })
}

// close says that no change will be appended.
func (l *changeLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.cond.Broadcast()
}

// stats says what waits.
func (l *changeLog) stats() (changes, bytes, max int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.bytes, l.max
}
