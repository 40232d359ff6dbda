package stdout

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// writing is one write, which continues when nobody waits for it any more.
type writing struct {
	buf  []byte
	owed torn  // what buf begins with
	ends []int // where each message's line ends in buf
	// of the messages, by lineID; set when nobody waits any more, since events are the caller's
	ids  []string
	done chan struct{}

	// Set before done is closed.
	written int
	err     error
}

// write renders all lines into one buffer and writes them at once. Lines that the writer took to
// their end are acknowledged.
func (s *Sink) write(ctx context.Context, batch []*sinks.Message) {
	w := s.render(batch)
	go func() {
		defer close(w.done)
		w.written, w.err = s.out.Write(w.buf)
	}()
	if !w.wait(ctx) {
		for _, m := range batch {
			w.ids = append(w.ids, lineID(m.Event))
		}
		s.left = w
		sinks.Fail(batch, stopped(ctx))
		return
	}
	s.conclude(w, func(i int) string { return lineID(batch[i].Event) })
	for i, m := range batch {
		if m.Err == nil && w.ends[i] > w.written {
			m.Err = explain(w.err)
		}
	}
}

// render makes the lines of a batch.
func (s *Sink) render(batch []*sinks.Message) *writing {
	w := &writing{owed: s.owed, ends: make([]int, len(batch)), done: make(chan struct{})}
	w.buf = append(s.buf[:0], s.owed.rest...)
	for i, m := range batch {
		// A message that is resent because its line was torn needs the rest of the line, and no
		// second one.
		if i > 0 || s.owed.rest == nil || s.owed.id != lineID(m.Event) {
			w.buf, m.Err = s.tryFormat(w.buf, m.Event)
		}
		w.ends[i] = len(w.buf)
	}
	s.buf = nil // the writer has it
	return w
}

// tryFormat appends the line of an event. A panic refuses the event, which has no line then.
func (s *Sink) tryFormat(buf []byte, e *event.Event) (out []byte, err error) {
	out = buf
	defer sinks.Recover(&err)
	return s.format(buf, e), nil
}

// wait is false when ctx ended before the write did.
func (w *writing) wait(ctx context.Context) bool {
	select {
	case <-w.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// conclude notes what a write that is done has left. id is of a message of it.
func (s *Sink) conclude(w *writing, id func(i int) string) {
	s.buf, s.owed = w.buf, w.torn(id)
}

// finish waits for a write that an earlier call has left, and notes what became of it. It is false
// when ctx ended before.
func (s *Sink) finish(ctx context.Context) bool {
	w := s.left
	if w == nil {
		return true
	}
	if !w.wait(ctx) {
		return false
	}
	s.left = nil
	s.conclude(w, func(i int) string { return w.ids[i] })
	for i, id := range w.ids {
		if w.ends[i] <= w.written {
			s.taken[id] = struct{}{}
		}
	}
	return true
}

// torn is the line that was taken in part.
func (w *writing) torn(id func(i int) string) torn {
	if w.written < len(w.owed.rest) {
		return torn{w.owed.id, slices.Clone(w.owed.rest[w.written:])}
	}
	begin := len(w.owed.rest)
	for i, end := range w.ends {
		if begin < w.written && w.written < end {
			return torn{id(i), slices.Clone(w.buf[w.written:end])}
		}
		begin = end
	}
	return torn{}
}

// untaken gives the messages whose lines were not taken by a write that nobody waited for.
func (s *Sink) untaken(batch []*sinks.Message) (rest []*sinks.Message) {
	if len(s.taken) == 0 {
		return batch
	}
	for _, m := range batch {
		id := lineID(m.Event)
		if _, ok := s.taken[id]; !ok {
			rest = append(rest, m)
		}
		delete(s.taken, id)
	}
	return rest
}
