package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// scriptedSink is a sink in memory that does what a test says, and fails the test when the
// publisher breaks the contract of sinks.Sink.
type scriptedSink struct {
	t      *testing.T
	order  sinks.Order
	limits sinks.Limits

	// Scripts; nil means success at once. They run without the lock.
	onOpen       func(attempt int) error
	onLane       func(e *event.Event) error
	onPublish    func(ctx context.Context, batch []*sinks.Message) // before the messages are answered
	onMessage    func(e *event.Event) answer
	onDeadLetter func(e *event.Event) error

	mu      sync.Mutex
	opens   int
	open    bool
	closed  bool
	calls   []call
	running int
	busy    map[string]bool     // lanes in flight
	stored  map[string][]string // ids by object, in the order they were stored
	dead    []string            // ids
	reasons []error
}

type call struct {
	at       time.Time
	messages int
}

// answer of a message: with err and stored, the message arrived but its acknowledgement did not.
type answer struct {
	err    error
	stored bool
}

var (
	errBusy    = &sinks.Error{Class: sinks.Retry, Err: errors.New("busy")}
	errAway    = &sinks.Error{Class: sinks.Reconnect, Err: errors.New("no route to host")}
	errTooBig  = &sinks.Error{Class: sinks.Refused, Err: errors.New("too large")}
	errBadAuth = &sinks.Error{Class: sinks.Refused, Err: errors.New("wrong password")}
)

func newSink(t *testing.T, order sinks.Order) *scriptedSink {
	return &scriptedSink{t: t, order: order, busy: map[string]bool{}, stored: map[string][]string{}}
}

func (s *scriptedSink) Open(context.Context) error {
	s.mu.Lock()
	s.opens++
	attempt := s.opens
	s.mu.Unlock()
	if s.onOpen != nil {
		if err := s.onOpen(attempt); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.closed = true, false
	return nil
}

func (s *scriptedSink) Order() sinks.Order   { return s.order }
func (s *scriptedSink) Limits() sinks.Limits { return s.limits }

func (s *scriptedSink) Lane(_ context.Context, e *event.Event) (string, error) {
	s.mu.Lock()
	if !s.open || s.closed {
		s.t.Error("Lane was called on a sink that is not open")
	}
	s.mu.Unlock()
	if s.onLane != nil {
		if err := s.onLane(e); err != nil {
			return "", err
		}
	}
	return s.lane(e), nil
}

func (s *scriptedSink) lane(e *event.Event) string {
	if s.order == sinks.ByObject {
		return e.Name
	}
	h := fnv.New32a()
	h.Write([]byte(e.Name))
	return "topic/" + strconv.Itoa(int(h.Sum32()%5))
}

func (s *scriptedSink) Publish(ctx context.Context, batch []*sinks.Message) {
	lanes := s.begin(batch)
	if s.onPublish != nil {
		s.onPublish(ctx, batch)
	}
	failed := false
	for _, m := range batch {
		switch {
		case ctx.Err() != nil:
			m.Err = ctx.Err()
		case failed && s.order == sinks.ByLane:
			m.Err = errBusy
		default:
			m.Err = s.one(m.Event)
			failed = failed || m.Err != nil && sinks.Classify(m.Err) != sinks.Refused
		}
	}
	s.end(lanes)
}

func (s *scriptedSink) one(e *event.Event) error {
	a := answer{stored: true}
	if s.onMessage != nil {
		a = s.onMessage(e)
	}
	if a.stored || a.err == nil {
		s.mu.Lock()
		s.stored[e.Name] = append(s.stored[e.Name], e.ID)
		s.mu.Unlock()
	}
	return a.err
}

// begin checks what a call may hold and how many may run.
func (s *scriptedSink) begin(batch []*sinks.Message) map[string]bool {
	lanes, bytes := map[string]bool{}, 0
	for _, m := range batch {
		lane := s.lane(m.Event)
		if lanes[lane] && s.order == sinks.ByObject {
			s.t.Errorf("two messages of %s in one call", lane)
		}
		lanes[lane] = true
		bytes += len(m.Event.Data)
		if m.Err != nil {
			s.t.Errorf("message %s comes with an answer: %v", m.Event.ID, m.Err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.calls = append(s.calls, call{time.Now(), len(batch)})
	switch l := s.limits; {
	case !s.open || s.closed:
		s.t.Error("Publish was called on a sink that is not open")
	case len(batch) == 0:
		s.t.Error("Publish was called with no messages")
	case s.order == sinks.ByLane && len(lanes) > 1:
		s.t.Errorf("messages of %d lanes in one call", len(lanes))
	case l.Messages > 0 && len(batch) > l.Messages, l.Bytes > 0 && bytes > l.Bytes && len(batch) > 1:
		s.t.Errorf("%d messages with %d bytes in one call, limits %+v", len(batch), bytes, l)
	case l.Concurrency > 0 && s.running > l.Concurrency:
		s.t.Errorf("%d calls at once, limit %d", s.running, l.Concurrency)
	}
	for lane := range lanes {
		if s.busy[lane] {
			s.t.Errorf("two messages of lane %s in flight", lane)
		}
		s.busy[lane] = true
	}
	return lanes
}

func (s *scriptedSink) end(lanes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	for lane := range lanes {
		delete(s.busy, lane)
	}
}

func (s *scriptedSink) DeadLetter(ctx context.Context, e *event.Event, reason error, _ int) error {
	if s.onDeadLetter != nil {
		if err := s.onDeadLetter(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, e.ID)
	s.reasons = append(s.reasons, reason)
	return nil
}

func (s *scriptedSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.running > 0 {
		s.t.Errorf("Close: closed before %v, %d calls running", s.closed, s.running)
	}
	s.closed = true
	return nil
}

// storedOf is what of an object was stored, duplicates in a row taken out.
func (s *scriptedSink) storedOf(object string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Compact(slices.Clone(s.stored[object])), " ")
}

func (s *scriptedSink) allCalls() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// recorder is a Settler that notes what was settled, and fails the test when an item is settled
// twice or out of order.
type recorder struct {
	t       *testing.T
	mu      sync.Mutex
	settled map[*publisher.Item]bool
	order   []string
	last    map[string]uint64 // Seq by object

	detached bool
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, settled: map[*publisher.Item]bool{}, last: map[string]uint64{}}
}

func (r *recorder) Settle(items []*publisher.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.detached {
		r.t.Errorf("%s was settled after Detach", items[0].Message.Event.ID)
	}
	for _, it := range items {
		object := it.Message.Event.Name
		switch {
		case it.Settler != r:
			r.t.Errorf("%s was settled with another settler", it.Message.Event.ID)
		case r.settled[it]:
			r.t.Errorf("%s was settled twice", it.Message.Event.ID)
		case it.Seq <= r.last[object]:
			r.t.Errorf("%s was settled after item %d of its object", it.Message.Event.ID, r.last[object])
		}
		r.settled[it] = true
		r.last[object] = it.Seq
		r.order = append(r.order, it.Message.Event.ID)
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.settled)
}

// ids is what was settled, in order.
func (r *recorder) ids() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.order, " ")
}

// items makes one item for each of the ids, "<object>/<n>" with n growing per object.
func (r *recorder) items(ids ...string) []*publisher.Item {
	items := make([]*publisher.Item, len(ids))
	for i, id := range ids {
		object, n, _ := strings.Cut(id, "/")
		seq, err := strconv.ParseUint(n, 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		items[i] = &publisher.Item{Settler: r, Seq: seq}
		items[i].Message.Event = &event.Event{ID: id, ObjectAttributes: event.ObjectAttributes{Name: object, Resource: "pods"}, Subject: object, Data: []byte(`{"n":` + n + `}`)}
	}
	return items
}

// numbered is "<object>/1" to "<object>/<n>".
func numbered(object string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s/%d", object, i+1)
	}
	return ids
}

// running is a publisher whose Run is going on.
type running struct {
	*publisher.Publisher
	t    *testing.T
	stop func() // ends Run and waits for it
}

// start runs a publisher of a sink until the test's end, or stop.
func start(t *testing.T, sink sinks.Sink, cfg publisher.Config) *running {
	t.Helper()
	cfg.Sink = sink
	cfg.Name = "test"
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	p, err := publisher.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return &running{Publisher: p, t: t, stop: stop}
}

func (p *running) add(items []*publisher.Item) {
	p.t.Helper()
	if err := p.Add(p.t.Context(), items); err != nil {
		p.t.Fatalf("Add: %v", err)
	}
}

func (p *running) drain() {
	p.t.Helper()
	if err := p.Drain(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}
