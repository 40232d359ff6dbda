package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

// errLooking is the answer to a message that is still looked for.
var errLooking = errors.New("the stream is still read for what was sent without an answer; the message is sent when that is done")

// look reads the streams of overdue messages for them, for as long as a call may take and no longer: the next call goes on where it ended. Other
// calls go on meanwhile. The error is for those of the messages that are overdue still.
func (s *Sink) look(ctx context.Context, overdue []*sinks.Message, to route) error {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	err := s.takeLooks(bounded, overdue, to)
	switch {
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	case err == nil, bounded.Err() != nil:
		return &sinks.Error{Class: sinks.Retry, Err: errLooking}
	default:
		return answer(s.withServersWord(err))
	}
}

func (s *Sink) takeLooks(ctx context.Context, overdue []*sinks.Message, to route) error {
	d := s.doubts
	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		st := d.overdueIn(overdue, to)
		if st == nil {
			return nil
		}
		if err := s.lookInto(ctx, st); err != nil {
			return fmt.Errorf("look for messages without an answer in stream %s: %w", st.name, err)
		}
	}
}

// overdueIn is a stream that one of the messages has to be looked for in; nil for none.
func (d *doubts) overdueIn(batch []*sinks.Message, to route) *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range batch {
		if in, ok := d.ids[to.id(m.Event)]; ok && in.overdue() {
			return in.stream
		}
	}
	return nil
}

// lookInto reads what a stream has stored since the first of its overdue messages was sent, or since the last look ended.
func (s *Sink) lookInto(ctx context.Context, st *stream) error {
	js, err := s.jetStream(s.conn)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	found, err := js.Stream(limited, st.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.doubts.gone(st)
		return nil
	}
	if err != nil {
		return err
	}
	info := found.CachedInfo()
	t := s.doubts.begin(st, info)
	reached := t.last
	if info.State.Msgs > 0 && t.first <= t.last {
		reached = t.first - 1
		err = s.readTail(ctx, js, t, func(m jetstream.Msg, sequence uint64) {
			s.doubts.saw(m.Headers().Get(nats.MsgIdHdr))
			reached = sequence
		})
		if err == nil {
			reached = t.last
		}
	}
	s.doubts.advance(st, reached)
	return err
}

// begin is the part of a stream to read.
func (d *doubts) begin(st *stream, info *jetstream.StreamInfo) tail {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := tail{stream: st.name, first: info.State.LastSeq + 1}
	for _, in := range d.ids {
		if in.stream != st || !in.overdue() {
			continue
		}
		if !info.Created.Equal(in.created) || in.looked > info.State.LastSeq { // made anew, or put back
			in.created, in.looked, in.begun = info.Created, 0, false
		}
		in.looked = max(in.looked, max(info.State.FirstSeq, 1)-1)
		if !in.begun {
			in.begun, in.until = true, info.State.LastSeq
		}
		t.first, t.last = min(t.first, in.looked+1), max(t.last, in.until)
	}
	return t
}

// saw notes a message that is there.
func (d *doubts) saw(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in, ok := d.ids[id]; ok {
		in.stored = true
	}
}

// advance notes up to which sequence a stream was read. What was looked for to its end is not there, and in doubt no more.
func (d *doubts) advance(st *stream, reached uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.ids {
		if in.stream != st || !in.begun || in.stored {
			continue
		}
		if in.looked = max(in.looked, reached); in.looked >= in.until {
			delete(d.ids, id)
		}
	}
	d.count.Store(int64(len(d.ids)))
}

// gone notes that a stream is not there any more, and nothing that was in it.
func (d *doubts) gone(st *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.ids {
		if in.stream == st && in.overdue() {
			delete(d.ids, id)
		}
	}
	d.count.Store(int64(len(d.ids)))
}
