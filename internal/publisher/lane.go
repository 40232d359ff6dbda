package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// lane is a FIFO of items that must arrive in their order. While it is in Publisher.lanes it is in
// the queue exactly once: waiting, delayed or with one worker.
type lane struct {
	name       string
	head, tail *Item // guarded by Publisher.mu
	// worker has the lane in its round, and alone takes items out until that ends; nil for none.
	// Guarded by Publisher.mu.
	worker *worker
	failed bool // the limiter counts failures of it; owned by the worker that has the lane
}

var lanePool = sync.Pool{New: func() any { return new(lane) }}

func (l *lane) push(it *Item) {
	if l.tail == nil {
		l.head = it
	} else {
		l.tail.next = it
	}
	l.tail = it
}

func (l *lane) pop() *Item {
	it := l.head
	if l.head, it.next = it.next, nil; l.head == nil {
		l.tail = nil
	}
	return it
}

// ages is the list of all queued items, oldest first.
type ages struct{ oldest, newest *Item }

func (a *ages) push(it *Item) {
	if it.older = a.newest; it.older == nil {
		a.oldest = it
	} else {
		it.older.newer = it
	}
	a.newest = it
}

func (a *ages) remove(it *Item) {
	if it.older == nil {
		a.oldest = it.newer
	} else {
		it.older.newer = it.newer
	}
	if it.newer == nil {
		a.newest = it.older
	} else {
		it.newer.older = it.older
	}
	it.older, it.newer = nil, nil
}

// age returns how long the oldest item has been queued.
func (p *Publisher) age() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ages.oldest == nil {
		return 0
	}
	return time.Since(p.ages.oldest.added)
}

// putLocked appends an item to its lane; it returns the lane when it is new and has to be queued.
func (p *Publisher) putLocked(it *Item) *lane {
	l := p.lanes[it.lane]
	if l != nil {
		l.push(it)
		return nil
	}
	l = lanePool.Get().(*lane)
	l.name = it.lane
	l.push(it)
	p.lanes[l.name] = l
	return l
}

// settledLocked takes out the settled items at the head of a lane.
func (p *Publisher) settledLocked(l *lane, settled []*Item) []*Item {
	for l.head != nil && l.head.state.settled() {
		it := l.pop()
		p.ages.remove(it)
		settled = append(settled, it)
	}
	return settled
}

// refusedLane holds items that the sink refused before it named a lane. No sink's name starts with
// a zero byte.
const refusedLane = "\x00refused"

// nameLane asks the sink for the lane of an item. A refused item gets the lane for refused items,
// and so does an event that could not be made.
func (p *Publisher) nameLane(ctx context.Context, it *Item) error {
	err := it.Message.Event.Err
	if err != nil {
		p.panicked("an event could not be made; it is a dead letter", it.Message.Event, err)
	} else if it.lane, err = p.laneOf(ctx, it.Message.Event); err != nil &&
		sinks.Classify(err) != sinks.Refused {
		return err
	}
	if err != nil {
		it.lane = refusedLane
		it.refuse(err)
	}
	p.recognize(it) // behind Lane, which may have read it back
	return nil
}

func (p *Publisher) laneOf(ctx context.Context, e *event.Event) (lane string, err error) {
	defer p.reportPanic(e, &err)
	defer sinks.Recover(&err)
	return p.cfg.Sink.Lane(ctx, e)
}

// warnings are messages that come once per event during a fault.
type warnings struct {
	retry, route, oversize, claim, panicked ratelimit.LogThrottle
	deadLettered, kept, lost, pending       ratelimit.LogThrottle // of refused messages
	losses                                  ratelimit.LogThrottle
}

// reportPanic counts and logs err where it is a panic in the work on one event.
func (p *Publisher) reportPanic(e *event.Event, err *error) {
	if isPanic(*err) {
		p.panicked("a panic in the work on one event; it is refused", e, *err)
	}
}

// reportOpenPanic counts and logs err where it is a panic in opening the sink.
func (p *Publisher) reportOpenPanic(err error) {
	if isPanic(err) {
		p.metrics.panics.Inc()
		p.warnings.panicked.Log(p.cfg.Log, slog.LevelError, "a panic while the sink was opened or "+
			"read back; it is tried again", "err", err.Error(), "stack", event.StackOf(err))
	}
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*event.PanicError](err)
	return ok
}

// panicked counts and logs a panic in the work on one event.
func (p *Publisher) panicked(message string, e *event.Event, err error) {
	p.metrics.panics.Inc()
	p.warnings.panicked.Log(p.cfg.Log, slog.LevelError, message, "id", e.ID, "subject", e.Subject,
		"err", err.Error(), "stack", event.StackOf(err))
}

// stalledAfter is how long a lane fails before it counts as stalled. An election takes less.
const stalledAfter = 10 * time.Second

// stalledLanes has the lanes that have failed since their last progress. While one has for
// stalledAfter, the sink stores nothing of some objects, although its broker answers.
type stalledLanes struct {
	mu    sync.Mutex
	lanes map[*lane]*stall // guarded by mu
	// silent is when the broker last did not answer, or was unavailable. Guarded by mu.
	silent time.Time
}

type stall struct {
	name    string
	since   time.Time // of the first failure
	refused time.Time // of the first of the answers that the broker has given since it was silent
	err     error     // of the last failure
}

// failed records a failure of a lane.
func (s *stalledLanes) failed(l *lane, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		s.lanes = map[*lane]*stall{}
	}
	in := s.lanes[l]
	if in == nil {
		in = &stall{name: l.name, since: time.Now()}
		s.lanes[l] = in
	}
	in.err, in.refused = err, s.refusedLocked(in.refused, err)
}

// refusedLocked returns since when a destination has been refused, after one more failure.
func (s *stalledLanes) refusedLocked(since time.Time, err error) time.Time {
	now := time.Now()
	switch {
	case sinks.Classify(err) == sinks.Reconnect, errors.Is(err, context.DeadlineExceeded):
		s.silent = now
		return time.Time{}
	case since.IsZero(), since.Before(s.silent):
		return now
	}
	return since
}

// isStalledLocked reports whether the broker has answered for stalledAfter, and taken nothing.
func (s *stalledLanes) isStalledLocked(refused time.Time) bool {
	return !refused.IsZero() && !refused.Before(s.silent) && time.Since(refused) >= stalledAfter
}

// unavailable records that the broker can't be reached.
func (s *stalledLanes) unavailable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = time.Now()
}

// progressed records that items of a lane are settled, or that it is empty.
func (s *stalledLanes) progressed(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lanes, l)
}

// first returns why the lane that has failed for longest stores nothing; nil when none is stalled.
func (s *stalledLanes) first() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *stall
	stalled := 0
	for _, in := range s.lanes {
		if time.Since(in.since) < stalledAfter {
			continue
		}
		if stalled++; oldest == nil || in.since.Before(oldest.since) {
			oldest = in
		}
	}
	if oldest == nil {
		return nil
	}
	return fmt.Errorf("nothing of %s is stored since %s: %w", name(stalled, oldest),
		oldest.since.Format(time.RFC3339), oldest.err)
}

// name names the stalled lanes: the first, and how many others there are.
func name(stalled int, first *stall) string {
	if stalled == 1 {
		return first.name
	}
	return fmt.Sprintf("%s and %d others", first.name, stalled-1)
}
