package nats

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/sinks"
)

// inDoubt has messages that were sent and not answered: they may be stored. When one is sent again,
// the stream drops it by its id, as long as it remembers that. After a longer outage it does not:
// then the sink searches the stream before it sends.
type inDoubt struct {
	count     atomic.Int64 // len(ids): avoids the lock while there are none
	searching *semaphore.Weighted

	mu  sync.Mutex
	ids map[string]*unanswered // guarded by mu, by Nats-Msg-Id
}

type unanswered struct {
	stream  *stream
	created time.Time // the creation of the stream that the sequences are of
	since   time.Time // just before it was sent first: the stream counts from its arrival
	// If the message is stored, its sequence is higher than searchedTo. A search raises that.
	// searchEnd is where the stream ended when the search began: when searchedTo reaches it, the
	// message is not there.
	searchedTo, searchEnd uint64
	begun                 bool // a search for it, which may continue in later calls
	stored                bool // the search has found it
}

func newInDoubt() *inDoubt {
	return &inDoubt{ids: map[string]*unanswered{}, searching: semaphore.NewWeighted(1)}
}

// recordUnanswered remembers which messages a call has left unanswered, and forgets those that it
// has settled. began is from before the call.
func (s *Sink) recordUnanswered(batch []*sinks.Message, to route, began lastSequences) {
	d := s.inDoubt
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
			d.ids[id] = &unanswered{
				stream: st, created: st.created, searchedTo: began.of(st), since: began.at,
			}
		}
	}
	d.count.Store(int64(len(d.ids)))
}

// has reports whether a message was sent before without an answer.
func (d *inDoubt) has(id string) bool {
	if d.count.Load() == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.ids[id]
	return ok
}

// allAnswered reports whether recordUnanswered has nothing to do.
func (d *inDoubt) allAnswered(batch []*sinks.Message) bool {
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

// splitInDoubt removes the messages from a batch that are known to be stored. overdue are those
// that their stream may have forgotten, so that they have to be searched for before they are sent;
// the others are ready.
func (s *Sink) splitInDoubt(batch []*sinks.Message, to route) (ready, overdue []*sinks.Message) {
	d := s.inDoubt
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

// overdue reports whether the stream may have forgotten the id.
func (in *unanswered) overdue() bool {
	return !in.stored && time.Since(in.since) >= in.stream.duplicates/2
}

// lastSequences are the last sequences of the streams at some time.
type lastSequences struct {
	at   time.Time
	one  uint64
	each map[*stream]uint64 // with several streams
}

func (s *Sink) lastSequences() (h lastSequences) {
	h.at = time.Now()
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

func (h lastSequences) of(st *stream) uint64 {
	if h.each == nil {
		return h.one
	}
	return h.each[st]
}
