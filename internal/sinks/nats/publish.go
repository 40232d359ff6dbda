package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks"
)

// publishJetStream writes all messages, then waits for the acks. Each is sent once: a second
// attempt from here could overtake a later message of its object, which the caller sends as soon as
// this one has an answer.
func (s *Sink) publishJetStream(ctx context.Context, batch []*sinks.Message, to route) {
	sinks.Fail(batch, nil)
	if err := errors.Join(s.reacquireFences(ctx, batch), s.resyncStreams(ctx, batch)); err != nil {
		sinks.Fail(batch, classified(err))
		return
	}
	ready, overdue := s.splitInDoubt(batch, to)
	s.sendOnce(ctx, ready, to)
	if len(overdue) == 0 {
		return
	}
	err := s.search(ctx, overdue, to) // after the others were sent: it may take a while
	ready, overdue = s.splitInDoubt(overdue, to)
	s.sendOnce(ctx, ready, to)
	sinks.Fail(overdue, err)
}

// sendOnce sends messages, and records which were not answered.
func (s *Sink) sendOnce(ctx context.Context, batch []*sinks.Message, to route) {
	if len(batch) == 0 {
		return
	}
	began := s.lastSequences()
	number, repeats := s.send(ctx, batch, to)
	s.checkRepeats(ctx, batch, repeats, to)
	s.lowerLimits(ctx, batch, to)
	if !s.inDoubt.allAnswered(batch) {
		s.recordUnanswered(batch, to, began, number)
	}
}

// send is one attempt. It returns the number of its call, 0 for none, and the messages that the
// stream had already.
func (s *Sink) send(ctx context.Context, batch []*sinks.Message, to route) (uint64, []duplicateAck) {
	c, err := s.acks.register(ctx, s.conn, batch, to)
	if err != nil {
		sinks.Fail(batch, err)
		return 0, nil
	}
	defer s.acks.unregister(c)
	defer c.releaseFence()
	s.write(ctx, c, to)
	s.wait(ctx, c)
	s.classifyFenced(batch)
	s.metrics.duplicates.Add(float64(len(c.repeats))) // the call has ended: nobody else uses it
	return c.number, c.repeats
}

// write hands the messages to the connection. It stops early when the connection breaks or ctx
// ends: then the call is finished.
func (s *Sink) write(ctx context.Context, c *call, to route) {
	enc := encoders.Get().(*encoder)
	defer enc.release()
	limits, err := s.limits()
	if err != nil {
		c.fail(err)
		return
	}
	for i, m := range c.batch {
		if c.finished() {
			return
		}
		if err := ctx.Err(); err != nil {
			c.fail(stopped(err))
			return
		}
		if err := enc.tryEncode(m.Event, to, s.cfg.Encoding,
			func(dst []byte) []byte { return c.appendReply(dst, i) }); err != nil {
			c.aboutToSend(nil)
			c.answer(i, failedWith(err))
			continue
		}
		st := s.streamOf(m.Event)
		c.aboutToSend(st)
		enc.setTTL(m.Event, to, st)
		if err := s.setFenceHeaders(ctx, c, enc, st); err != nil {
			c.fail(stopped(err))
			return
		}
		limits.stream = s.limitOf(st, to).Load()
		if err := limits.check(enc); err != nil {
			c.answer(i, failedWith(classified(err)))
			continue
		}
		if err := s.conn.PublishMsg(enc.message()); err != nil && !s.writeFailed(c, i, err) {
			return
		}
	}
}

// writeFailed answers for a message that the client did not accept, and reports whether to
// continue. An error that is not about this message is one of the connection, whose buffer may be
// lost with it.
func (s *Sink) writeFailed(c *call, i int, err error) bool {
	// Open has checked that: the server has reported otherwise since
	if errors.Is(err, nats.ErrHeadersNotSupported) {
		c.fail(s.distrustServer(err))
		return false
	}
	// it fitted a moment ago: the server has reported another limit since
	if errors.Is(err, nats.ErrMaxPayload) {
		c.answer(i, failedWith(&sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("publish: %w",
			err)}))
		return true
	}
	err = classified(fmt.Errorf("publish: %w", err))
	if sinks.Classify(err) == sinks.Refused {
		c.answer(i, failedWith(err))
		return true
	}
	c.fail(err)
	return false
}

// unanswered is the error of a question to the server's API, with what the server reported shortly
// before. A question is small: where it does not fit, the server's limits are not believed.
func (s *Sink) unanswered(err error) error {
	if isAny(err, nats.ErrMaxPayload, nats.ErrHeadersNotSupported) {
		return s.distrustServer(err)
	}
	return classified(s.withServerError(err))
}

// missingRight is what the server said shortly before of one of these rights, which the user lacks;
// nil for nothing. A question without the right has no answer.
func (s *Sink) missingRight(rights []string) error {
	return s.reported.violations.since(s.cfg.Timeout+s.cfg.AckTimeout, rights)
}

// distrustServer ends a connection whose server reports limits that no NATS server has: with them,
// every event would be refused. The next connection reads the server's limits again.
func (s *Sink) distrustServer(err error) error {
	s.log.Warn("the server reports an impossible limit; connecting again", "err", err)
	_ = s.conn.ForceReconnect() // it fails when there is no connection
	return &sinks.Error{Class: sinks.Reconnect, Err: err}
}

// wait reads answers until each message has its own.
func (s *Sink) wait(ctx context.Context, c *call) {
	timer := time.NewTimer(s.cfg.AckTimeout)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return
		case m := <-c.inbox.messages:
			s.acks.receive(c, m)
		case <-ctx.Done():
			c.fail(stopped(ctx.Err()))
		case <-timer.C:
			c.fail(classified(s.withServerError(fmt.Errorf("%w (after %v)", ErrAckTimeout,
				s.cfg.AckTimeout))))
		}
	}
}

// publishCore writes all messages and waits until the server has read them.
func (s *Sink) publishCore(ctx context.Context, batch []*sinks.Message, to route) {
	reconnects := s.conn.Stats().Reconnects
	denied := s.reported.denials.begin()
	s.writeCore(ctx, batch, to)
	err := s.flush(ctx)
	s.reported.denials.end(denied)
	if err == nil && s.conn.Stats().Reconnects != reconnects {
		// The flush went over another connection than the messages.
		err = classified(fmt.Errorf("publish: %w", nats.ErrDisconnected))
	}
	for _, m := range batch {
		if m.Err == nil {
			m.Err = err
		}
		if m.Err != nil || len(denied.bySubject) == 0 {
			continue
		}
		if text, ok := denied.bySubject[s.subjectOf(m, to)]; ok {
			m.Err = forbidden(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text))
		}
	}
}

// writeCore hands the messages to the connection. Err is nil where that succeeded.
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
		if m.Err = enc.tryEncode(m.Event, to, s.cfg.Encoding, nil); m.Err != nil {
			continue
		}
		if m.Err = classified(limits.check(enc)); m.Err == nil {
			m.Err = classified(s.conn.PublishMsg(enc.message()))
		}
	}
}

// flush returns once the server has read everything that was written before.
func (s *Sink) flush(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	connected, disconnect := context.WithCancelCause(bounded)
	defer disconnect(nil)
	// A flush without a connection, also one that was lost a moment ago, would wait for the next.
	broken := s.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	var watching sync.WaitGroup
	watching.Go(func() {
		if _, isBroken := <-broken; isBroken {
			disconnect(nats.ErrDisconnected)
		}
	})
	defer watching.Wait()
	defer s.conn.RemoveStatusListener(broken) // closes it
	if !s.conn.IsConnected() {
		return classified(fmt.Errorf("flush: %w", nats.ErrDisconnected))
	}
	switch err := s.conn.FlushWithContext(connected); {
	case err == nil:
		return nil
	case errors.Is(context.Cause(connected), nats.ErrDisconnected):
		return classified(fmt.Errorf("flush: %w", nats.ErrDisconnected))
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return classified(s.withServerError(fmt.Errorf("flush: %w (after %v)", ErrAckTimeout,
			s.cfg.AckTimeout)))
	default:
		return classified(fmt.Errorf("flush: %w", err))
	}
}

// stopped is the answer when the caller's context ended, by a deadline or a cancellation.
func stopped(err error) error { return &sinks.Error{Class: sinks.Stopped, Err: err} }
