package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/sinks"
)

// inDoubt has messages that were sent and not answered: they may be stored. When one is sent again,
// the stream drops it by its id, as long as it remembers that. After a longer outage it does not:
// then the sink searches the stream before it sends.
type inDoubt struct {
	count     atomic.Int64 // len(ids): avoids the lock while there are none
	searching *semaphore.Weighted

	mu       sync.Mutex
	ids      map[string]*unanswered // guarded by mu, by Nats-Msg-Id
	attempts map[attempt]string     // guarded by mu: ids, by the attempts of each
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
	stored                bool // the search has found it, or a late ack says so
	attempts              []attempt
}

// maxAttempts is how many attempts of a message are known by their number: late acks of a slow
// server are those of the first ones.
const maxAttempts = 16

func newInDoubt() *inDoubt {
	return &inDoubt{
		ids: map[string]*unanswered{}, attempts: map[attempt]string{}, searching: semaphore.NewWeighted(1),
	}
}

// recordUnanswered remembers which messages a call has left unanswered, and forgets those that it
// has settled. began is from before the call with this number.
func (s *Sink) recordUnanswered(batch []*sinks.Message, to route, began lastSequences, number uint64) {
	d := s.inDoubt
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, m := range batch {
		id := to.id(m.Event)
		if m.Err == nil || sinks.Classify(m.Err) == sinks.Refused {
			d.removeLocked(id)
			continue
		}
		in, st := d.ids[id], s.streamOf(m.Event)
		if in == nil && st != nil {
			in = &unanswered{
				stream: st, created: st.created, searchedTo: began.sequenceOf(st), since: began.at,
			}
			d.ids[id] = in
		}
		if in != nil && number > 0 && len(in.attempts) < maxAttempts {
			in.attempts = append(in.attempts, attempt{number, i})
			d.attempts[attempt{number, i}] = id
		}
	}
	d.count.Store(int64(len(d.ids)))
}

func (d *inDoubt) removeLocked(id string) {
	if in, ok := d.ids[id]; ok {
		for _, a := range in.attempts {
			delete(d.attempts, a)
		}
		delete(d.ids, id)
	}
}

// acknowledged takes the late answer to an attempt. If it says that the message is stored, and can
// be true, its id is returned: it is not sent again.
func (d *inDoubt) acknowledged(from attempt, a *ack) (id string, believed bool) {
	if a.kind != stored || d.count.Load() == 0 {
		return "", false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, ok := d.attempts[from]
	if !ok {
		return "", false
	}
	in := d.ids[id]
	if a.stream != in.stream.name || a.seq <= in.searchedTo || a.seq > in.stream.last.Load()+maxAhead {
		return "", false
	}
	in.stream.reached(a.seq)
	in.stored = true
	return id, true
}

// forget removes a message that is not sent again.
func (d *inDoubt) forget(id string) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeLocked(id)
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
			d.removeLocked(id)
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

func (h lastSequences) sequenceOf(st *stream) uint64 {
	if h.each == nil {
		return h.one
	}
	return h.each[st]
}

// errSearching is the answer to a message that is still searched for.
var errSearching = errors.New("the stream is still searched for messages that were sent without " +
	"an answer; the message is sent when that is done")

// search reads the streams of overdue messages for them, for at most AckTimeout: the next call
// continues where it ended. Other calls run meanwhile. The error is for the messages that are still
// overdue.
func (s *Sink) search(ctx context.Context, overdue []*sinks.Message, to route) error {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	err := s.searchAll(bounded, overdue, to)
	switch {
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	case err == nil, bounded.Err() != nil:
		return &sinks.Error{Class: sinks.Retry, Err: errSearching}
	default:
		return s.unanswered(err)
	}
}

func (s *Sink) searchAll(ctx context.Context, overdue []*sinks.Message, to route) error {
	d := s.inDoubt
	if err := d.searching.Acquire(ctx, 1); err != nil {
		return err
	}
	defer d.searching.Release(1)
	for {
		st := d.overdueIn(overdue, to)
		if st == nil {
			return nil
		}
		if err := s.searchStream(ctx, st); err != nil {
			return fmt.Errorf("search for messages without an answer in stream %s: %w", st.name,
				err)
		}
	}
}

// overdueIn returns a stream in which one of the messages has to be searched for; nil for none.
func (d *inDoubt) overdueIn(batch []*sinks.Message, to route) *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range batch {
		if in, ok := d.ids[to.id(m.Event)]; ok && in.overdue() {
			return in.stream
		}
	}
	return nil
}

// searchStream reads what a stream has stored since the first of its overdue messages was sent, or
// since the last search ended.
func (s *Sink) searchStream(ctx context.Context, st *stream) error {
	js, err := s.jetStream(s.conn)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	found, err := js.Stream(limited, st.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.inDoubt.streamGone(st)
		return nil
	}
	if err != nil {
		return err
	}
	info := found.CachedInfo()
	t := s.inDoubt.searchRange(st, info)
	reached := t.last
	if info.State.Msgs > 0 && t.first <= t.last {
		reached = t.first - 1
		err = s.readRange(ctx, js, t, func(m jetstream.Msg, sequence uint64) {
			s.inDoubt.markStored(m.Headers().Get(nats.MsgIdHdr))
			reached = sequence
		})
		if err == nil {
			reached = t.last
		}
	}
	s.inDoubt.searched(st, reached)
	return err
}

// searchRange returns the part of a stream to read.
func (d *inDoubt) searchRange(st *stream, info *jetstream.StreamInfo) streamRange {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := streamRange{stream: st.name, first: info.State.LastSeq + 1}
	for _, in := range d.ids {
		if in.stream != st || !in.overdue() {
			continue
		}
		// recreated, or restored
		if !info.Created.Equal(in.created) || in.searchedTo > info.State.LastSeq {
			in.created, in.searchedTo, in.begun = info.Created, 0, false
		}
		in.searchedTo = max(in.searchedTo, max(info.State.FirstSeq, 1)-1)
		if !in.begun {
			in.begun, in.searchEnd = true, info.State.LastSeq
		}
		t.first, t.last = min(t.first, in.searchedTo+1), max(t.last, in.searchEnd)
	}
	return t
}

// markStored records a message that was found.
func (d *inDoubt) markStored(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in, ok := d.ids[id]; ok {
		in.stored = true
	}
}

// searched records up to which sequence a stream was read. A message that was searched for to its
// end is not there, and no longer in doubt.
func (d *inDoubt) searched(st *stream, reached uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.ids {
		if in.stream != st || !in.begun || in.stored {
			continue
		}
		if in.searchedTo = max(in.searchedTo, reached); in.searchedTo >= in.searchEnd {
			d.removeLocked(id)
		}
	}
	d.count.Store(int64(len(d.ids)))
}

// streamGone records that a stream does not exist any more, and none of its messages.
func (d *inDoubt) streamGone(st *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.ids {
		if in.stream == st && in.overdue() {
			d.removeLocked(id)
		}
	}
	d.count.Store(int64(len(d.ids)))
}
