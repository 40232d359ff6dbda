package publisher

import (
	"sync"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Mark is a place in the sink's log behind which an item was stored. An item holds it from its
// first attempt on; when it is settled, the hold is its Settler's, who releases it when no restart
// will add the item again. Positions that are saved do not pass a mark that is held.
type Mark struct {
	position []byte // guarded by marks.mu until it is held for the first time, then constant
	holds    atomic.Int64
}

// Release gives back one hold. A nil Mark (of a sink that has no positions) has none.
func (m *Mark) Release() {
	if m != nil {
		m.holds.Add(-1)
	}
}

// maxMarks bounds how many places are remembered while the oldest is held. With more, new items
// hold the newest of them, and a restart reads a longer tail.
const maxMarks = 64

// marks are the places of one sink that are held, oldest first, and behind them the one that new
// items hold.
type marks struct {
	sink sinks.Recaller // nil: it has none

	mu     sync.Mutex
	list   []*Mark
	held   bool // the last of list has been held
	closed bool // the sink is: its last position stays
}

// hold gives the newest mark to n items that are about to be sent for the first time.
func (ms *marks) hold(n int) *Mark {
	if ms.sink == nil || n == 0 {
		return nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	last := ms.list[len(ms.list)-1]
	last.holds.Add(int64(n))
	ms.held = true
	return last
}

// low is a position that everything lies behind that was sent and is still held, or will be sent.
// What was released before the call is not in that, so a commit asks before it takes what is
// settled. It is nil while the sink is not open.
func (ms *marks) low() []byte {
	if ms.sink == nil || !ms.opened() {
		return nil
	}
	ms.renew()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	n := 0
	for n < len(ms.list)-1 && ms.list[n].holds.Load() == 0 {
		n++
	}
	ms.list = append(ms.list[:0], ms.list[n:]...)
	return ms.list[0].position
}

func (ms *marks) opened() bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return len(ms.list) > 0
}

// renew makes the sink's position of now the newest mark. What is sent from now on lies behind it;
// what is in flight holds an earlier one.
func (ms *marks) renew() {
	ms.mu.Lock()
	closed := ms.closed
	ms.mu.Unlock()
	if closed {
		return
	}
	position := ms.sink.Position() // without the lock: whoever holds meanwhile holds the mark before
	ms.mu.Lock()
	defer ms.mu.Unlock()
	switch {
	case ms.closed: // meanwhile: the sink may have said what it says when it is closed
	case len(ms.list) == 0:
		ms.list = []*Mark{{position: position}}
	case !ms.held:
		ms.list[len(ms.list)-1].position = position
	case len(ms.list) < maxMarks:
		ms.list = append(ms.list, &Mark{position: position})
		ms.held = false
	}
}

// open takes the first position of a sink that has recalled what it was to.
func (ms *marks) open() {
	if ms.sink != nil {
		ms.renew()
	}
}

// close takes the last position of a sink that is about to be closed.
func (ms *marks) close() {
	if ms.sink == nil || !ms.opened() {
		return
	}
	ms.renew()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.closed = true
}
