package publisher

import (
	"context"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// answer acts on what the sink answered: settles, and sends every lane where its answer says.
func (w *worker) answer(ctx context.Context, pass ratelimit.Pass) {
	down := w.readAnswers(ctx)
	w.inform(ctx, pass, down)
	w.collect()
	w.settle()
	for _, s := range w.sent {
		w.direct(s)
	}
	w.putBack()
}

// putBack gives the lanes to the queue again, those that can continue first: their items wait for
// nothing.
func (w *worker) putBack() {
	w.release(w.onward)
	w.unpick(w.first, w.delayed)
	w.p.queue.Return(w.first...)
	for _, l := range w.delayed {
		l.failed = true
		w.p.queue.AddRateLimited(l)
	}
	w.p.queue.Done(w.delayed...)
	w.onward, w.first, w.delayed = w.onward[:0], w.first[:0], w.delayed[:0]
}

// unpick ends the round of lanes that are not released.
func (w *worker) unpick(first, delayed []*lane) {
	if len(first)+len(delayed) == 0 {
		return
	}
	var left swept
	w.p.mu.Lock()
	for _, lanes := range [][]*lane{first, delayed} {
		for _, l := range lanes {
			l.worker = nil
			w.p.sweepLocked(l, &left)
		}
	}
	w.p.mu.Unlock()
	w.p.handBack(&left)
}

// release puts back the lanes that can continue, and frees those that are empty.
func (w *worker) release(lanes []*lane) {
	if len(lanes) == 0 {
		return
	}
	w.remaining, w.emptied = w.remaining[:0], w.emptied[:0]
	var left swept
	w.p.mu.Lock()
	for _, l := range lanes {
		l.worker = nil
		w.p.sweepLocked(l, &left)
		if l.head == nil {
			delete(w.p.lanes, l.name)
			w.emptied = append(w.emptied, l)
		} else {
			w.remaining = append(w.remaining, l)
		}
	}
	w.p.mu.Unlock()
	w.p.handBack(&left)
	w.p.queue.Add(w.remaining...)
	w.p.queue.Done(lanes...)
	for i, l := range w.emptied {
		if l.failed { // it got empty without getting on
			w.p.queue.Forget(l)
		}
		*l = lane{} // nobody knows it any more: not the map, not the queue, not the limiter
		lanePool.Put(l)
		w.emptied[i] = nil
	}
}

// readAnswers writes each message's answer to its item, up to the first failure of each lane. It
// returns an error that says that the broker can't be reached, if there was one.
func (w *worker) readAnswers(ctx context.Context) (down error) {
	at, acked := 0, 0
	for i := range w.sent {
		s := &w.sent[i]
		for _, it := range w.items[at : at+s.count] {
			if it.state != itemSending {
				continue
			}
			it.attempts++
			w.readAnswer(ctx, s, it)
			if it.state == itemStored {
				acked++
			}
		}
		at += s.count
		if s.err != nil && s.class == sinks.Reconnect {
			down = s.err
		}
	}
	w.p.published(acked)
	return down
}

func (w *worker) readAnswer(ctx context.Context, s *sent, it *Item) {
	err := it.Message.Err
	switch class := w.p.classify(ctx, err); {
	case s.err != nil:
		it.on(onFail)
		if err == nil {
			w.p.cfg.Log.Error("sink acknowledged a message behind one that failed; it is sent "+
				"again, after that one", "id", it.Message.Event.ID, "lane", it.lane)
		}
	case err == nil:
		it.on(onStore)
	case class == sinks.Refused:
		w.p.reportPanic(it.Message.Event, &err)
		it.refuse(err)
	default:
		if isPanic(err) {
			w.p.panicked("a panic at the answer to an event; it is sent again", it.Message.Event, err)
		}
		it.on(onFail)
		s.err, s.class = err, class
	}
}

// What the sink answers decides what happens (sinks.Classify):
//
//   - Retry delays the lane alone, exponentially with jitter. Other lanes continue.
//   - Reconnect pauses the whole sink with one backoff. After it one worker tries one message; its
//     answer ends the pause or starts a longer one.
//   - Refused sends the message to the dead letters; later messages of the lane continue behind it.
//     A dead letter that can't be stored either is tried again: nothing is dropped but where the
//     configuration says so.
//   - Stopped leaves the item as it is.

// classify is sinks.Classify, but Stopped only when the publisher itself is being stopped: a sink
// that gave up for another reason is asked again.
func (p *Publisher) classify(ctx context.Context, err error) sinks.Class {
	class := sinks.Classify(err)
	if class == sinks.Stopped && ctx.Err() == nil {
		return sinks.Retry
	}
	return class
}

// inform lets the breaker know whether the broker answered. A call cut short by ctx says nothing
// about the broker.
func (w *worker) inform(ctx context.Context, pass ratelimit.Pass, down error) {
	if down == nil {
		if ctx.Err() != nil {
			w.p.breaker.GiveUp(pass)
		} else if w.p.breaker.Succeed(pass) {
			w.p.cfg.Log.Info("broker is back")
		}
		return
	}
	w.p.failed(down)
	if pause, tripped := w.p.breaker.Trip(pass); tripped {
		w.p.cfg.Log.Warn("broker can't be reached; the sink pauses", "err", down, "next_attempt_in",
			pause.String())
	}
}

// collect takes what was acknowledged, or is a dead letter, out of the lanes. A lane that got on
// starts over with its delays.
func (w *worker) collect() {
	w.p.mu.Lock()
	for i := range w.sent {
		before := len(w.settled)
		w.settled = w.p.settledLocked(w.sent[i].lane, w.settled)
		w.sent[i].settled = len(w.settled) > before
	}
	w.p.mu.Unlock()
	for _, s := range w.sent {
		if s.settled && s.lane.failed {
			s.lane.failed = false
			w.p.queue.Forget(s.lane)
		}
	}
}

// settle calls the settlers, each once for all of its items, and then frees their capacity. It
// comes before the lanes are released: settlers see the items of a lane in their order.
func (w *worker) settle() {
	w.same = w.p.settle(w.settled, w.same)
	w.settled = w.settled[:0]
}

// direct decides where a lane goes after its answers.
func (w *worker) direct(s sent) {
	switch {
	case s.err == nil:
		if w.headRefused(s.lane) {
			w.refused = append(w.refused, s.lane)
		} else {
			w.onward = append(w.onward, s.lane)
		}
	case s.class == sinks.Reconnect, s.class == sinks.Stopped:
		w.p.countRetries(s.class, s.err)
		w.first = append(w.first, s.lane)
	default:
		w.p.countRetries(s.class, s.err)
		w.delayed = append(w.delayed, s.lane)
	}
}

func (w *worker) headRefused(l *lane) bool {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return l.head != nil && l.head.state == itemRefused && w.p.detachmentOfLocked(l.head) == nil
}
