package kafka

import (
	"sync"
	"unsafe"

	"github.com/kubebridge/bridge/internal/event"
)

// fitted is the batch that Fits has made last: Publish sends the same event next, and compressing a
// large one takes most of its time. It is one batch, and no more than a topic takes.
type fitted struct {
	mu    sync.Mutex
	of    eventBytes
	bytes []byte
	size  int // before compression
	count int32
}

// eventBytes distinguishes an event from another one that is kept in the same memory later.
type eventBytes struct {
	event *event.Event
	id    string
	data  *byte
	size  int
}

func bytesOf(e *event.Event) eventBytes {
	return eventBytes{event: e, id: e.MessageID(), data: unsafe.SliceData(e.Data), size: len(e.Data)}
}

// keep takes the bytes over.
func (f *fitted) keep(e *event.Event, bytes []byte, size int, count int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of, f.bytes, f.size, f.count = bytesOf(e), bytes, size, count
}

// reuse gives the bytes away, nil when they are of another event.
func (f *fitted) reuse(e *event.Event) (bytes []byte, size int, count int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes == nil || f.of.event != e || f.of != bytesOf(e) {
		return nil, 0, 0
	}
	bytes, f.bytes, f.of = f.bytes, nil, eventBytes{}
	return bytes, f.size, f.count
}
