package nats

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// doubts are messages that were sent and not answered: they may be stored. When one is sent again, the stream removes it by its id, as long as it
// remembers that. After an outage that was longer it does not: then the sink looks before it sends.
type doubts struct {
	count atomic.Int64  // len(ids): spares the lock while there are none
	turn  chan struct{} // holds one token; who has it looks

	mu  sync.Mutex
	ids map[string]*doubt // guarded by mu, by Nats-Msg-Id
}

type doubt struct {
	stream  *stream
	created time.Time // of the stream that the sequences are of
	since   time.Time
	// The message lies behind sequence looked, if it is stored. A look raises that; when it reaches until, which is where the stream ended when
	// the look was begun, the message is not there.
	looked, until uint64
	begun         bool // a look for it, which may go on in later calls
	stored        bool // it was looked for, and found
}

func newDoubts() *doubts {
	d := &doubts{ids: map[string]*doubt{}, turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	return d
}

// note remembers what a call that began at such heights has left open, and forgets what it has settled.
func (s *Sink) note(batch []*sinks.Message, to route, began heights) {
	d := s.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range batch {
		id := to.id(m.Event)
		if m.Err == nil || sinks.Classify(m.Err) == sinks.Refused {
			delete(d.ids, id)
			continue
		}
		st := s.streamOf(m.Event)
		if _, ok := d.ids[id]; !ok && st != nil {
			d.ids[id] = &doubt{stream: st, created: st.created, looked: began.of(st), since: time.Now()}
		}
	}
	d.count.Store(int64(len(d.ids)))
}

// has reports whether a message was sent before without an answer.
func (d *doubts) has(id string) bool {
	if d.count.Load() == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.ids[id]
	return ok
}

// answered says whether a batch needs no note.
func (d *doubts) answered(batch []*sinks.Message) bool {
	if d.count.Load() > 0 {
		return false
	}
	for _, m := range batch {
		if m.Err != nil {
			return false
		}
	}
	return true
}

// sortDoubts takes the messages out of a batch that are known to be stored. Overdue are those that their stream may have forgotten, so that they
// have to be looked for before they are sent; the others are ready.
func (s *Sink) sortDoubts(batch []*sinks.Message, to route) (ready, overdue []*sinks.Message) {
	d := s.doubts
	if d.count.Load() == 0 {
		return batch, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range batch {
		id := to.id(m.Event)
		switch in, ok := d.ids[id]; {
		case ok && in.stored:
			delete(d.ids, id)
			s.metrics.duplicates.Inc()
		case ok && in.overdue():
			overdue = append(overdue, m)
		default:
			ready = append(ready, m)
		}
	}
	d.count.Store(int64(len(d.ids)))
	return ready, overdue
}

// overdue says whether the stream may have forgotten the id.
func (in *doubt) overdue() bool {
	return !in.stored && time.Since(in.since) >= in.stream.duplicates/2
}

// heights are the last sequences of the streams at some time.
type heights struct {
	one  uint64
	each map[*stream]uint64 // with several streams
}

func (s *Sink) heights() (h heights) {
	if !s.several {
		if st := s.streams.only.Load(); st != nil {
			h.one = st.last.Load()
		}
		return h
	}
	h.each = map[*stream]uint64{}
	for _, st := range s.streams.all() {
		h.each[st] = st.last.Load()
	}
	return h
}

func (h heights) of(st *stream) uint64 {
	if h.each == nil {
		return h.one
	}
	return h.each[st]
}
