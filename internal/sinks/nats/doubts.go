package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

// doubts are messages that were sent and not answered: they may be stored. When one is sent again, the stream removes it by its id, as long as it
// remembers that. After an outage that was longer it does not: then the sink looks before it sends.
type doubts struct {
	count atomic.Int64  // len(ids): spares the lock while there are none
	turn  chan struct{} // holds one token; who has it looks

	mu  sync.Mutex
	ids map[string]doubt // guarded by mu, by Nats-Msg-Id
}

type doubt struct {
	stream *stream
	from   uint64 // the message lies behind this sequence, if it is stored
	since  time.Time
	stored bool // it was looked for, and found
}

func newDoubts() *doubts {
	d := &doubts{ids: map[string]doubt{}, turn: make(chan struct{}, 1)}
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
			d.ids[id] = doubt{stream: st, from: began.of(st), since: time.Now()}
		}
	}
	d.count.Store(int64(len(d.ids)))
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

// look is a stream to look into, behind a sequence.
type look struct {
	stream *stream
	from   uint64
}

// overdue is where to look for a message of the batch that its stream may have forgotten; nil for none.
func (d *doubts) overdue(batch []*sinks.Message, to route) *look {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range batch {
		in, ok := d.ids[to.id(m.Event)]
		if !ok || in.stored || time.Since(in.since) < in.stream.duplicates/2 {
			continue
		}
		l := &look{in.stream, in.from}
		for _, other := range d.ids { // one look is for all of the stream
			if other.stream == l.stream {
				l.from = min(l.from, other.from)
			}
		}
		return l
	}
	return nil
}

// resolve notes what a look has found. What it has not found is not stored, and in doubt no more.
func (d *doubts) resolve(l *look, found map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.ids {
		switch {
		case in.stream != l.stream || in.from < l.from:
		case found[id]:
			in.stored = true
			d.ids[id] = in
		default:
			delete(d.ids, id)
		}
	}
	d.count.Store(int64(len(d.ids)))
}

// takeStored gives the messages of a batch that are not known to be stored.
func (d *doubts) takeStored(batch []*sinks.Message, to route) (open []*sinks.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range batch {
		if id := to.id(m.Event); d.ids[id].stored {
			delete(d.ids, id)
			continue
		}
		open = append(open, m)
	}
	d.count.Store(int64(len(d.ids)))
	return open
}

// settleDoubts gives the messages of a batch that are to be sent, after a look for those that may be stored already.
func (s *Sink) settleDoubts(ctx context.Context, batch []*sinks.Message, to route) ([]*sinks.Message, error) {
	d := s.doubts
	if d.count.Load() == 0 {
		return batch, nil
	}
	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, stopped(ctx.Err())
	}
	for l := d.overdue(batch, to); l != nil; l = d.overdue(batch, to) {
		found, err := s.lookFor(ctx, l)
		if err != nil {
			if ctx.Err() != nil {
				return nil, stopped(ctx.Err())
			}
			return nil, answer(s.withServersWord(fmt.Errorf("look for messages without an answer in stream %s: %w", l.stream.name, err)))
		}
		d.resolve(l, found)
	}
	open := d.takeStored(batch, to)
	s.metrics.duplicates.Add(float64(len(batch) - len(open)))
	return open, nil
}

// lookFor reads the ids of what a stream has stored behind a sequence.
func (s *Sink) lookFor(ctx context.Context, l *look) (found map[string]bool, err error) {
	js, err := s.jetStream(s.conn)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	stream, err := js.Stream(limited, l.stream.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	t := tail{stream: l.stream.name, last: info.State.LastSeq, first: l.from + 1}
	if !info.Created.Equal(l.stream.created) || l.from > t.last { // made anew, or put back
		t.first = max(info.State.FirstSeq, 1)
	}
	found = map[string]bool{}
	if info.State.Msgs == 0 || t.first > t.last {
		return found, nil
	}
	return found, s.readTail(ctx, js, t, func(id string) { found[id] = true })
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
