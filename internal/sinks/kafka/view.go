package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// A compacted topic is a view of the state when its last record of each key is of an object that
// exists, or null. An object that is gone without an event would stay: the state directory was
// lost, and with it what was known of it. So before the end of a list is stored, each partition is
// read, and what does not exist is deleted.

// view is what the sink knows of one.
type view struct {
	sweeps sinks.Sweeps[*sweep] // by lane and the id of the event that ends the list
	rows   rows
}

// sweep is one partition that is compared with a list. The call of its lane owns it.
type sweep struct {
	next int64                          // the offset to read from
	gone map[string]event.MissingObject // by key: the last record so far is of no object that exists
}

// publishView publishes messages of one lane in their order, and sweeps the lane before those that
// end a list.
func (s *Sink) publishView(ctx context.Context, l *lane, batch []*sinks.Message) {
	batch = s.view.rows.needed(batch)
	defer s.recordRows(batch)
	for len(batch) > 0 {
		n := slices.IndexFunc(batch, func(m *sinks.Message) bool { return m.Exists != nil })
		if n == 0 {
			if err := s.sweep(ctx, l, batch[0]); err != nil {
				sinks.Fail(batch, err)
				return
			}
			n = 1
		}
		if n < 0 {
			n = len(batch)
		}
		l.publish(ctx, batch[:n], s.encode)
		if open := unsettled(batch[:n]); open != nil {
			sinks.Fail(batch[n:], open)
			return
		}
		batch = batch[n:]
	}
}

// unsettled is the error of a message that is neither stored nor refused.
func unsettled(batch []*sinks.Message) error {
	for _, m := range batch {
		if m.Err != nil && sinks.Classify(m.Err) != sinks.Refused {
			return m.Err
		}
	}
	return nil
}

// sweep deletes the keys of objects that do not exist. The message ends a list: what comes before
// it is stored, and nothing of its objects is in flight. An error is never Refused: the caller
// fails all that follows with it, which are events of other informers where resources share a
// topic.
func (s *Sink) sweep(ctx context.Context, l *lane, end *sinks.Message) error {
	id := l.name + " " + end.Event.ID
	w := s.view.sweeps.Get(id)
	if w == nil {
		w = &sweep{gone: map[string]event.MissingObject{}}
		s.view.sweeps.Set(id, w)
	}
	if err := s.readKeys(ctx, l, w, end); err != nil {
		// never as refused, whatever the broker answers: it has seen none of the call's events
		return l.unanswered(ctx, classify(err), fmt.Errorf("compare with the list: %w", err))
	}
	if len(w.gone) > 0 {
		s.log.Warn("the topic held objects that do not exist: they are deleted", "lane", l.name,
			"resource", end.Event.PartitionKey, "objects", len(w.gone))
	}
	keys := slices.Sorted(maps.Keys(w.gone))
	for chunk := range slices.Chunk(keys, s.Limits().Messages/2) { // each has a tombstone
		batch := make([]*sinks.Message, len(chunk))
		for i, key := range chunk {
			batch[i] = &sinks.Message{Event: w.gone[key].Deleted(end.Event)}
		}
		l.publish(ctx, batch, s.encode)
		if open := unsettled(batch); open != nil {
			return open
		}
		for i, m := range batch {
			if m.Err != nil {
				if err := s.removeRow(ctx, m.Event); err != nil {
					return err
				}
			}
			delete(w.gone, chunk[i])
		}
	}
	s.view.sweeps.Done(id)
	return nil
}

// removeRow stores the tombstone of a deleted object whose event the broker has refused: without
// it the object's last state stays. A tombstone is small, so that the broker takes it where the
// event does not fit. A refusal of the tombstone too is logged.
func (s *Sink) removeRow(ctx context.Context, e *event.Event) error {
	if !s.encode.tombstones || e.Op != event.Deleted || e.CompactionKey != "" {
		return nil
	}
	l, err := s.laneOf(ctx, s.topic, e)
	if err != nil {
		return err
	}
	enc, m := s.encode, &sinks.Message{Event: e}
	enc.bare = true
	l.publish(ctx, []*sinks.Message{m}, enc)
	if m.Err != nil && sinks.Classify(m.Err) == sinks.Refused {
		s.log.Error("the broker refuses the tombstone of a deleted object: its last state stays in "+
			"the topic", "lane", l.name, "key", e.PartitionKey, "err", m.Err)
		return nil
	}
	return m.Err
}

// readKeys reads what the partition holds.
func (s *Sink) readKeys(ctx context.Context, l *lane, w *sweep, end *sinks.Message) error {
	log := &Log{cluster: l.cluster, patience: patience}
	first, last, err := log.Bounds(ctx, l.topic, l.partition)
	if err != nil {
		return err
	}
	informers := s.config.CurrentInformers()
	for w.next = max(w.next, first); w.next < last; {
		next, _, err := log.Read(ctx, l.topic, l.partition, w.next, last, func(r *Record) error {
			return w.visit(r, end, informers)
		})
		if err != nil {
			return err
		}
		w.next = next
	}
	return nil
}

// visit looks at a record of an object of the list's collection.
func (w *sweep) visit(r *Record, end *sinks.Message, informers []string) error {
	key, about := string(r.Key), end.Event
	rest, ours := strings.CutPrefix(key, about.PartitionKey+"/")
	namespace, name, ok := strings.Cut(rest, "/")
	if !ours || !ok || about.Namespace != "" && namespace != about.Namespace {
		return nil
	}
	if r.Value == nil {
		delete(w.gone, key)
		return nil
	}
	if end.OtherInformer(r.header(informerHeader), informers) {
		return nil
	}
	exists, err := end.Exists(namespace, name)
	if err != nil || exists {
		delete(w.gone, key)
		return err
	}
	e, _ := new(event.Message).ReadKafka(r.Each, r.Value).Event() // what can't be read has no attributes
	w.gone[strings.Clone(key)] = event.MissingObject{
		Namespace: namespace, Name: name, UID: e.UID, Subject: e.Subject,
		ResourceVersion: e.ResourceVersion,
	}
	return nil
}

func (r *Record) header(name string) string {
	for _, h := range r.Headers {
		if h.Name == name {
			return string(h.Value)
		}
	}
	return ""
}

// A row that somebody else has deleted or replaced would stay so until its object changes. What
// others have written shows in the offsets: the sink's own records lie where it expects them. So
// only those records are read, and never the whole topic. Then all objects are sent again
// (sinks.Unverified), and the sink stores those whose key was written by others.

// rows has what others have written to views.
type rows struct {
	count atomic.Int64 // len(suspects): avoids the lock while there are none

	mu       sync.Mutex
	foreign  map[*lane]offsets // guarded by mu: where others may have written since the last look
	read     map[*lane]int64   // guarded by mu: up to where that was read
	suspects map[string]bool   // guarded by mu: keys that others have written; true: sent for again
	round    sinks.Round       // guarded by mu

	// Owned by Inspect.
	began time.Time       // of the last round
	seen  map[*lane]int64 // what the lane had stored at the last look
	log   ratelimit.LogThrottle
}

// offsets are those from the first up to before the end.
type offsets struct{ first, end int64 }

// maxSuspects bounds the keys that are remembered. Those beyond are found with the next round.
const maxSuspects = 1 << 20

// note records that others may have written offsets of a lane. Those that were read are no news.
func (r *rows) note(l *lane, in offsets) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.first = max(in.first, r.read[l]); in.first >= in.end {
		return
	}
	if before, ok := r.foreign[l]; ok {
		in = offsets{min(before.first, in.first), max(before.end, in.end)}
	}
	if r.foreign == nil {
		r.foreign, r.read = map[*lane]offsets{}, map[*lane]int64{}
	}
	r.foreign[l] = in
}

// forget is called when a lane's log has become shorter.
func (r *rows) forget(l *lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.foreign, l)
	delete(r.read, l)
}

func (r *rows) take(l *lane) (in offsets, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, ok = r.foreign[l]
	if delete(r.foreign, l); ok {
		r.read[l] = in.end
	}
	return in, ok
}

// putBack returns what could not be read.
func (r *rows) putBack(l *lane, in offsets) {
	r.mu.Lock()
	r.read[l] = in.first
	r.mu.Unlock()
	r.note(l, in)
}

// inspectRows reads what others may have written to a partition of a view. What can't be read now
// is read at the next look.
func (s *Sink) inspectRows(ctx context.Context, l *lane) {
	r := &s.view.rows
	r.noteIdle(ctx, l)
	in, ok := r.take(l)
	if !ok {
		return
	}
	in.first = max(in.first, l.logStart.at.Load()) // what is deleted can't be read
	log, last := &Log{cluster: l.cluster, patience: patience}, ""
	for in.first < in.end {
		next, _, err := log.Read(ctx, l.topic, l.partition, in.first, in.end, func(rec *Record) error {
			last = r.visit(s.config.Name, rec, last)
			return nil
		})
		if err != nil || next <= in.first {
			r.putBack(l, in)
			return
		}
		in.first = next
	}
}

// noteIdle notes what was written behind a lane's last record while the lane stored nothing; before
// it has started, behind that of an earlier process.
func (r *rows) noteIdle(ctx context.Context, l *lane) {
	saved := l.savedOffset()
	if saved.offset < 0 {
		return
	}
	if l.saved.Load() == nil {
		saved = l.sink.readBack.savedAt(l.topic, l.partition)
	}
	end, err := l.cluster.offset(ctx, l.topic, l.partition, latest)
	if err == nil && saved.offset == r.seen[l] {
		r.note(l, offsets{saved.offset, end})
	}
	if r.seen == nil {
		r.seen = map[*lane]int64{}
	}
	r.seen[l] = saved.offset
}

// visit takes a record, and returns its key where the sink has stored it: then the tombstone behind
// it is the sink's too.
func (r *rows) visit(sink string, rec *Record, last string) string {
	key := string(rec.Key)
	isOurs := rec.header(informerHeader) != "" && rec.header(sinkHeader) == sink
	if isOurs {
		return key
	}
	if key == "" || rec.Value == nil && key == last {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.suspects == nil {
		r.suspects = map[string]bool{}
	}
	if len(r.suspects) < maxSuspects {
		r.suspects[key] = false
		r.count.Store(int64(len(r.suspects)))
	}
	return ""
}

// begin begins a round when others have written keys, and returns that objects are to be sent.
func (r *rows) begin() []sinks.Loss {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew := false
	for key, isSent := range r.suspects {
		if isSent && now.Sub(r.began) > sinks.RoundTime {
			delete(r.suspects, key) // of no object
		}
		isNew = isNew || !isSent
	}
	if r.count.Store(int64(len(r.suspects))); !isNew || now.Sub(r.began) < sinks.RoundTime {
		return nil
	}
	for key := range r.suspects {
		r.suspects[key] = true
	}
	r.began, r.round = now, sinks.NewRound(now)
	return []sinks.Loss{{Reason: sinks.Unverified, Round: r.round.Number()}}
}

// needed leaves out the events of a round whose keys only the sink has written.
func (r *rows) needed(batch []*sinks.Message) []*sinks.Message {
	if !slices.ContainsFunc(batch, func(m *sinks.Message) bool { return m.Event.Op == event.Synced }) {
		return batch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	needed := make([]*sinks.Message, 0, len(batch))
	for _, m := range batch {
		if _, isSuspect := r.suspects[m.Event.PartitionKey]; r.round.Has(m.Event) && !isSuspect {
			m.Err = nil
			continue
		}
		needed = append(needed, m)
	}
	return needed
}

// recordRows records which keys the sink has stored again.
func (s *Sink) recordRows(batch []*sinks.Message) {
	r := &s.view.rows
	if r.count.Load() == 0 {
		return
	}
	var repaired []string
	r.mu.Lock()
	for _, m := range batch {
		key := m.Event.PartitionKey
		if r.suspects[key] && m.Err == nil && m.Event.CompactionKey == "" {
			delete(r.suspects, key)
			repaired = append(repaired, key)
		}
	}
	r.count.Store(int64(len(r.suspects)))
	r.mu.Unlock()
	for _, key := range repaired {
		r.log.Warn(s.log, "somebody else has written a key of the view: its object is stored again", "key", key)
	}
}
