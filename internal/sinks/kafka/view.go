package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// A compacted topic is a view of the state when its last record of each key is of an object that
// exists, or null. An object that is gone without an event would stay: the state directory was
// lost, and with it what was known of it. So before the end of a list is stored, each partition is
// read, and what does not exist is deleted.

// sweep is one partition that is compared with a list. The call of its lane owns it.
type sweep struct {
	next int64                          // the offset to read from
	gone map[string]event.MissingObject // by key: the last record so far is of no object that exists
}

// publishView publishes messages of one lane in their order, and sweeps the lane before those that
// end a list.
func (s *Sink) publishView(ctx context.Context, l *lane, batch []*sinks.Message) {
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
	w := s.sweeps.Get(id)
	if w == nil {
		w = &sweep{gone: map[string]event.MissingObject{}}
		s.sweeps.Set(id, w)
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
	s.sweeps.Done(id)
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
