package nats_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// Sinks that put their events into one stream, on subjects of their own.
func both(c *nats.Options) { c.Stream.Subjects = []string{"k8s.>", "audit.>"} }

func audit(c *nats.Options) {
	c.Name, c.Subject, c.DeadLetterSubject = "audit", "audit.{resource}.{namespace}.{name}", "audit._dead"
}

// fedBy is what feeds a sink, as the test changes it.
func fedBy(names ...string) (func(*nats.Options), *atomic.Pointer[[]string]) {
	var now atomic.Pointer[[]string]
	now.Store(&names)
	return func(c *nats.Options) { c.Informers = func() []string { return *now.Load() } }, &now
}

// by is an event of another informer.
func by(informer string, e *event.Event) *event.Event {
	e.Informer = informer
	return e
}

func TestSharedStream(t *testing.T) {
	ts := newTestServer(t)
	workloads, _ := fedBy("workloads")
	nodes, _ := fedBy("nodes")
	one, two := ts.openSink(both, workloads), ts.openSink(both, audit, nodes)
	from := two.Position()
	for version := range 10 {
		mustStore(t, one, by("workloads", ev("a", version+1)))
		mustStore(t, two, by("nodes", ev("a", version+1)))
	}
	if n := len(storedMessages(t, ts.jetStream(), "K8S")); n != 20 {
		t.Errorf("%d messages are stored, want 20", n)
	}
	for _, id := range recalled(t, ts.openSink(both, audit, nodes), from) {
		if !strings.HasPrefix(id, "nodes/") {
			t.Errorf("recalled %s, which is the other sink's", id)
		}
	}
}

func TestStreamOwners(t *testing.T) {
	ts := newTestServer(t)
	workloads, _ := fedBy("nodes", "workloads")
	others, now := fedBy("pods", "workloads")
	one := ts.openSink(both, workloads)
	mustStore(t, one, ev("a", 1))
	// The same server by another name.
	elsewhere := func(c *nats.Options) {
		c.Servers = addresses(strings.Replace(string(c.Servers[0]), "127.0.0.1", "localhost", 1))
	}
	two := ts.newSink(both, audit, others, elsewhere)
	t.Cleanup(func() { _ = two.Close() })
	err := two.Open(t.Context())
	wantClass(t, err, sinks.Refused)
	wantMentions(t, err, "stream K8S", "sink nats", "informer workloads",
		"nats.stream.name", "nats.subject")
	mustStore(t, one, ev("a", 2))

	t.Run("what is configured now counts", func(t *testing.T) {
		now.Store(&[]string{"pods"})
		if err := two.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = two.Close()
		now.Store(&[]string{"workloads"})
	})
	t.Run("a stream of its own is no matter", func(t *testing.T) {
		ts.openSink(others, func(c *nats.Options) {
			c.Name, c.Subject,
				c.Stream.Name = "own", "own.{name}", "OWN"
		})
	})
	t.Run("one of the same name takes the other's place",
		func(t *testing.T) { ts.openSink(both, workloads) })
	t.Run("when the other is closed it may", func(t *testing.T) {
		third, _ := fedBy("third")
		three := ts.openSink(both, third, func(c *nats.Options) { c.Name = "three" })
		four := ts.newSink(both, third, func(c *nats.Options) { c.Name = "four" })
		if four.Open(t.Context()) == nil {
			t.Fatal("opened beside another")
		}
		_ = three.Close()
		if err := four.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = four.Close()
	})
}

func TestStreamOwnersOfTemplate(t *testing.T) {
	ts := newTestServer(t)
	workloads, now := fedBy("workloads")
	mustMeet(t, ts.openSink(severalStreams, workloads), ev("a", 1))
	two := ts.openSink(severalStreams, workloads, func(c *nats.Options) { c.Name = "two" })
	_, err := two.Lane(t.Context(), ev("a", 1))
	wantClass(t, err, sinks.Retry) // the event waits
	wantMentions(t, err, "stream K8S-test-deployments", "sink nats", "informer workloads")
	now.Store(&[]string{})
	mustMeet(t, two, ev("a", 1))
}

// After a crash of a bridge whose sinks are in one stream by other ways than its configuration
// names.
func TestRecallOfSharedStream(t *testing.T) {
	ts := newTestServer(t)
	one, two := ts.openSink(both), ts.openSink(both, audit)
	from := two.Position()
	mustStore(t, one, ev("a", 1))
	mustStore(t, two, ev("b", 1))
	wantIDs(t, recalled(t, ts.openSink(both, audit), from), ev("b", 1))
}

func TestSharedDeadLetterSubject(t *testing.T) {
	ts := newTestServer(t)
	place := func(c *nats.Options) { c.DeadLetterSubject = "k8s.dead" }
	one := ts.openSink(both, place)
	two := ts.openSink(both, audit, place)
	from := two.Position()
	for _, s := range []*nats.Sink{one, two, one, two} {
		if err := s.DeadLetter(t.Context(), ev("a", 1), errTest, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.DeadLetter(t.Context(), ev("b", 1), errTest, 1); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
		got = append(got, m.Header.Get("Nats-Msg-Id"))
	}
	want := []string{ev("a", 1).MessageID() + "/dead/nats", ev("a", 1).MessageID() +
		"/dead/audit", ev("b", 1).MessageID() + "/dead/nats"}
	if !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	if back := recalled(t, ts.openSink(both, audit, place), from); !slices.Contains(back,
		ev("a", 1).MessageID()) || slices.Contains(back, ev("b", 1).MessageID()) {
		t.Errorf("recalled %q, want of the events %s only", back, ev("a", 1).MessageID())
	}
}

func TestSharedBucket(t *testing.T) {
	ts := newTestServer(t)
	one, two := ts.openSink(withBucket), ts.openSink(withBucket)
	e, f := ev("a", 1), ev("a", 1)
	e.Data, f.Data = bytes.Repeat([]byte("o"), 1000), bytes.Repeat([]byte("c"), 1000)
	first, err := one.Claim(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	second, err := two.Claim(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if got := claimed(t, ts.jetStream(), second); !bytes.Equal(got, f.Data) {
		t.Errorf("%s holds %.10s..., want %.10s...", second, got, f.Data)
	}
	if got := claimed(t, ts.jetStream(), first); !bytes.Equal(got, e.Data) {
		t.Errorf("%s holds %.10s..., want %.10s...", first, got, e.Data)
	}
}

func TestFencesOfSharedStream(t *testing.T) {
	ts := newTestServer(t)
	fenced := func(c *nats.Options) {
		c.Fence = &sinks.Fence{Name: "bridge", Confirm: func(context.Context) error { return nil }}
	}
	one, two := ts.openSink(both, fenced), ts.openSink(both, audit, fenced)
	for version := range 10 {
		mustStore(t, one, ev("a", version+1))
		mustStore(t, two, by("nodes", ev("a", version+1)))
	}
}

// Each stream of a template takes what its first sink publishes, fences included.
func TestFencesOfSharedTemplate(t *testing.T) {
	ts := newTestServer(t)
	var o office
	workloads, _ := fedBy("workloads")
	nodes, _ := fedBy("nodes")
	named := func(name string) func(*nats.Options) { return func(c *nats.Options) { c.Name = name } }
	one := ts.openSink(severalStreams, workloads, named("one"), o.of(0))
	two := ts.openSink(severalStreams, nodes, named("two"), o.of(0))
	mustMeet(t, one, by("workloads", ev("a", 1)))
	mustMeet(t, two, by("nodes", ev("a", 1)))
	for version := range 3 {
		mustStore(t, one, by("workloads", ev("a", version+1)))
		mustStore(t, two, by("nodes", ev("a", version+1)))
	}
}
