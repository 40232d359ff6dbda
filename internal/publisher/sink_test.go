package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

var errBadAuth = &sinks.Error{Class: sinks.Refused, Err: errors.New("wrong password")}

// newSink is the sink of a broker in memory.
func newSink(t *testing.T, order sinks.Order) *testkit.Session {
	return testkit.NewBroker(t, "test", order).Connect(0)
}

// storedOf is what of an object was stored, duplicates in a row taken out.
func storedOf(sink *testkit.Session, object string) string {
	return strings.Join(slices.Compact(sink.Stored(object)), " ")
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
		items[i].Message.Event = &event.Event{
			ID: id, ObjectAttributes: event.ObjectAttributes{Name: object, Resource: "pods"},
			Subject: object, PartitionKey: object, Data: []byte(`{"n":` + n + `}`),
		}
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

// running is a publisher whose Run has not returned.
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
