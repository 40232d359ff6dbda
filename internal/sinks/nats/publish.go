package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks"
)

// publishJetStream writes all messages, then waits for the acks. Each is sent once: a resend from here could overtake a
// later message of its object, which the caller lets go as soon as this one has an answer.
func (s *Sink) publishJetStream(ctx context.Context, batch []*sinks.Message, to route) {
	sinks.Fail(batch, nil)
	if err := errors.Join(s.mend(ctx, batch), s.resolveDoubts(ctx, batch)); err != nil {
		sinks.Fail(batch, answer(err))
		return
	}
	ready, overdue := s.sortDoubts(batch, to)
	s.attempt(ctx, ready, to)
	if len(overdue) == 0 {
		return
	}
	err := s.look(ctx, overdue, to) // after the others were sent: it may take a while
	ready, overdue = s.sortDoubts(overdue, to)
	s.attempt(ctx, ready, to)
	sinks.Fail(overdue, err)
}

// attempt sends messages, and notes which were not answered.
func (s *Sink) attempt(ctx context.Context, batch []*sinks.Message, to route) {
	if len(batch) == 0 {
		return
	}
	began := s.heights()
	s.checkRepeats(ctx, batch, s.send(ctx, batch, to), to)
	if !s.doubts.answered(batch) {
		s.note(batch, to, began)
	}
}

// send is one attempt. It gives those that the stream held already.
func (s *Sink) send(ctx context.Context, batch []*sinks.Message, to route) []repeat {
	c, err := s.acks.begin(ctx, batch)
	if err != nil {
		sinks.Fail(batch, stopped(err))
		return nil
	}
	defer s.acks.end(c)
	defer c.leave()
	s.write(ctx, c, to)
	s.wait(ctx, c)
	s.turnedAway(batch)
	s.metrics.duplicates.Add(float64(len(c.repeats))) // the call is over: nobody else touches it
	return c.repeats
}

// write hands the messages to the connection. It stops early when the connection breaks or ctx ends: then the call is over.
func (s *Sink) write(ctx context.Context, c *call, to route) {
	enc := encoders.Get().(*encoder)
	defer enc.release()
	limits, err := s.limits()
	if err != nil {
		c.fail(err)
		return
	}
	for i, m := range c.batch {
		if c.over() {
			return
		}
		if err := ctx.Err(); err != nil {
			c.fail(stopped(err))
			return
		}
		enc.encode(m.Event, to, s.cfg.Encoding, func(dst []byte) []byte { return s.acks.appendReply(dst, c, i) })
		st := s.streamOf(m.Event)
		c.aboutToSend(st)
		if err := s.guard(ctx, c, enc, st); err != nil {
			c.fail(stopped(err))
			return
		}
		if err := limits.of(st).check(enc); err != nil {
			c.answer(i, failedWith(answer(err)))
			continue
		}
		if err := s.conn.PublishMsg(enc.message()); err != nil && !s.writeFailed(c, i, err) {
			return
		}
	}
}

// writeFailed answers for a message that the client did not take, and says whether to go on. An error that is
// not about this message is one of the connection, and whatever lay in its buffer may be lost with it.
func (s *Sink) writeFailed(c *call, i int, err error) bool {
	if errors.Is(err, nats.ErrHeadersNotSupported) { // Open has seen that they are: the server has said otherwise since
		c.fail(s.disbelieve(err))
		return false
	}
	if errors.Is(err, nats.ErrMaxPayload) { // it fitted a moment ago: the server says otherwise since
		c.answer(i, failedWith(&sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("publish: %w", err)}))
		return true
	}
	err = answer(fmt.Errorf("publish: %w", err))
	if sinks.Classify(err) == sinks.Refused {
		c.answer(i, failedWith(err))
		return true
	}
	c.fail(err)
	return false
}

// disbelieve ends a connection whose server has said what no server of the sink says: with that, every
// event would be refused. The next connection hears anew what the server can do.
func (s *Sink) disbelieve(err error) error {
	s.log.Warn("the server says what can't be; connecting again", "err", err)
	_ = s.conn.ForceReconnect() // it fails when there is no connection
	return &sinks.Error{Class: sinks.Reconnect, Err: err}
}

// wait returns when each message has its answer.
func (s *Sink) wait(ctx context.Context, c *call) {
	timer := time.NewTimer(s.cfg.AckTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-ctx.Done():
		c.fail(stopped(ctx.Err()))
	case <-timer.C:
		c.fail(answer(s.withServersWord(fmt.Errorf("%w (after %v)", ErrAckTimeout, s.cfg.AckTimeout))))
	}
}

// publishCore writes all messages and asks the server for a sign that it has read them.
func (s *Sink) publishCore(ctx context.Context, batch []*sinks.Message, to route) {
	reconnects := s.conn.Stats().Reconnects
	s.writeCore(ctx, batch, to)
	err := s.flush(ctx)
	if err == nil && s.conn.Stats().Reconnects != reconnects {
		// The sign came over another connection than the messages went.
		err = answer(fmt.Errorf("publish: %w", nats.ErrDisconnected))
	}
	for _, m := range batch {
		if m.Err == nil {
			m.Err = err
		}
	}
}

// writeCore hands the messages to the connection. Err is nil where that went well.
func (s *Sink) writeCore(ctx context.Context, batch []*sinks.Message, to route) {
	enc := encoders.Get().(*encoder)
	defer enc.release()
	limits, err := s.limits()
	if err != nil {
		sinks.Fail(batch, err)
		return
	}
	for _, m := range batch {
		if err := ctx.Err(); err != nil {
			m.Err = stopped(err)
			continue
		}
		enc.encode(m.Event, to, s.cfg.Encoding, nil)
		if m.Err = answer(limits.check(enc)); m.Err == nil {
			m.Err = answer(s.conn.PublishMsg(enc.message()))
		}
	}
}

// flush returns once the server has read everything that was written before.
func (s *Sink) flush(ctx context.Context) error {
	if !s.conn.IsConnected() { // else the flush would wait for the next connection
		return answer(fmt.Errorf("flush: %w", nats.ErrDisconnected))
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	switch err := s.conn.FlushWithContext(bounded); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return answer(s.withServersWord(fmt.Errorf("flush: %w (after %v)", ErrAckTimeout, s.cfg.AckTimeout)))
	default:
		return answer(fmt.Errorf("flush: %w", err))
	}
}

// stopped is the answer when the caller's context ended: a deadline is the caller's wish as well as a cancellation.
func stopped(err error) error { return &sinks.Error{Class: sinks.Stopped, Err: err} }
