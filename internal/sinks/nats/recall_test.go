package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// recalled is what a new sink reports of what an earlier one left behind a position.
func recalled(t *testing.T, sink *nats.Sink, from []byte) []string {
	t.Helper()
	var ids []string
	patiently(t, func() error {
		ids = nil
		return sink.ReadBack(t.Context(), from, func(id string) { ids = append(ids, id) })
	})
	slices.Sort(ids)
	return ids
}

func wantIDs(t *testing.T, got []string, events ...*event.Event) {
	t.Helper()
	var want []string
	for _, e := range events {
		want = append(want, e.MessageID())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("recalled %q, want %q", got, want)
	}
}

// The consumer may be on a replica that is behind: at first it has nothing.
func TestRecallBehind(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	mustStore(t, sink, ev("a", 1))
	from := sink.Position()
	mustStore(t, sink, ev("a", 2), ev("b", 1))
	l := newLiar(t, ts.url())
	next := ts.openSink(l.use)
	wasBehind := false
	pending := []byte(`"num_pending":2`)
	l.answer(answers, 10, func(m message) []byte {
		wasBehind = wasBehind || bytes.Contains(m.payload, pending)
		said := bytes.Replace(m.payload, pending, []byte(`"num_pending":0`), 1)
		return m.saying(string(bytes.ReplaceAll(said, []byte(`"num_replicas":1`), []byte(`"num_replicas":3`))))
	})
	wantIDs(t, recalled(t, next, from), ev("a", 2), ev("b", 1))
	if !wasBehind {
		t.Error("the test shows nothing")
	}
}

func TestRecall(t *testing.T) {
	for name, change := range map[string]func(*nats.Options){
		"one stream":      func(*nats.Options) {},
		"several streams": severalStreams,
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t)
			sink := ts.openSink(change)
			mustMeet(t, sink, ev("a", 1), of("pods", "b", 1))
			mustStore(t, sink, ev("a", 1), of("pods", "b", 1))
			from := sink.Position()
			if again := sink.Position(); !bytes.Equal(from, again) {
				t.Errorf("nothing moved, and the position went from %s to %s", from, again)
			}
			later := []*event.Event{ev("a", 2), of("pods", "b", 2), of("nodes", "n", 1)}
			mustMeet(t, sink, later...)
			mustStore(t, sink, later...)
			if err := sink.DeadLetter(t.Context(), ev("dead", 1), errTest, 1); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, recalled(t, ts.openSink(change), from), append(later, ev("dead", 1))...)
			if sink.Close() != nil {
				t.Fatal("close")
			}
			next := ts.openSink(change)
			mustMeet(t, next, later...)
			if position := next.Position(); len(recalled(t, next, position)) > 0 {
				t.Errorf("behind %s lies %q", position, recalled(t, next, position))
			}
		})
	}
}

func TestRecallOfAnotherStream(t *testing.T) {
	ts := newTestServer(t)
	js := ts.jetStream()
	sink := ts.openSink()
	mustStore(t, sink, ev("a", 1), ev("b", 1), ev("c", 1))
	from := sink.Position()

	t.Run("no position", func(t *testing.T) { wantIDs(t, recalled(t, ts.openSink(), nil)) })
	t.Run("of another version",
		func(t *testing.T) { wantIDs(t, recalled(t, ts.openSink(), []byte(`{"format":99}`))) })
	t.Run("of something else",
		func(t *testing.T) { wantIDs(t, recalled(t, ts.openSink(), []byte("\x01kafka"))) })

	mustStore(t, sink, ev("a", 2))
	stream, err := js.Stream(t.Context(), "K8S")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("purged", func(t *testing.T) {
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, recalled(t, ts.openSink(), from))
		mustStore(t, sink, ev("a", 3))
		wantIDs(t, recalled(t, ts.openSink(), from), ev("a", 3))
	})
	t.Run("recreated", func(t *testing.T) {
		if err := js.DeleteStream(t.Context(), "K8S"); err != nil {
			t.Fatal(err)
		}
		reopened := ts.reopenSink()
		wantIDs(t, recalled(t, reopened, from))
		mustStore(t, reopened, ev("a", 4))
		wantIDs(t, recalled(t, ts.openSink(), from), ev("a", 4))
	})
}

func TestRecallWithoutPermission(t *testing.T) {
	ts := newTestServer(t, withUser("bridge", "secret", denyPublish("$JS.API.CONSUMER.>")))
	sink := ts.openSink(func(c *nats.Options) {
		c.Username, c.Password = "bridge", "secret"
		c.Timeout = 2 * time.Second
	})
	from := sink.Position()
	mustStore(t, sink, ev("a", 1))
	wantIDs(t, recalled(t, sink, from))
}

func TestLongRecall(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	from := sink.Position()
	var events []*event.Event
	for version := range 10 {
		batch := eventsOf(objectNames(0, 300), version+1)
		mustStore(t, sink, batch...)
		events = append(events, batch...)
	}
	wantIDs(t, recalled(t, ts.openSink(), from), events...)
}

// The stream's own window is over long before the bridge is back: only the tail reports what is
// there.
func TestRecallAfterCrash(t *testing.T) {
	ts := newTestServer(t)
	short := jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.test.>"},
		Duplicates: 100 * time.Millisecond,
	}
	if _, err := ts.jetStream().CreateStream(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	window := func(c *nats.Options) { c.Stream.DuplicateWindow = 100 * time.Millisecond }
	first := ts.openSink(window)
	from := first.Position()
	// acknowledged, and not in any checkpoint
	mustStore(t, first, eventsOf(objectNames(0, 50), 1)...)
	_ = first.Close()
	time.Sleep(300 * time.Millisecond)

	sink := ts.newSink(window)
	p, err := publisher.New(publisher.Config{
		Sink: sink, Name: "again", Log: testLog(t),
		Saved: publisher.SavedPosition{Position: from},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var items []*publisher.Item
	for version := 1; version <= 2; version++ {
		for _, e := range eventsOf(objectNames(0, 50), version) {
			items = append(items, &publisher.Item{
				Message: sinks.Message{Event: e},
				Settler: indifferent{},
			})
		}
	}
	if err := p.Add(ctx, items); err != nil {
		t.Fatal(err)
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	<-ended
	seen := map[string]int{}
	for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
		seen[m.Header.Get("Nats-Msg-Id")]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d events are stored, want 100", len(seen))
	}
}

// of is the version-th event of an object of another resource.
func of(resource, name string, version int) *event.Event {
	e := ev(name, version)
	e.ID, e.Resource = fmt.Sprint(resource, "-", e.ID), resource
	e.PartitionKey = resource + "/shop/" + name
	return e
}

func severalStreams(c *nats.Options) { c.Stream.Name = "K8S-{cluster}-{resource}" }

// mustMeet has the sink find the streams of events, as a publisher does before it publishes them.
func mustMeet(t *testing.T, sink *nats.Sink, events ...*event.Event) {
	t.Helper()
	for _, e := range events {
		if _, err := sink.Lane(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream that has no leader any more while it is read back is an error to try again, and no wait
// without an end: the sink would say nothing meanwhile.
func TestRecallInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	servers := newTestCluster(t)
	open := func() *nats.Sink {
		return openOver(t, servers[1].url(), func(o *nats.Options) { o.Stream.Replicas = 3 })
	}
	sink := open()
	storePatiently(t, sink, ev("a", 1))
	from := sink.Position()
	const events = 1500 // more than are asked for at once
	for version := range events {
		storePatiently(t, sink, ev("a", version+2))
	}
	var others sync.WaitGroup
	next, n, ended := open(), 0, make(chan struct{})
	go func() {
		defer close(ended)
		_ = next.ReadBack(t.Context(), from, func(string) { // it may find all
			if n++; n == 1 {
				for _, other := range servers[1:] {
					others.Go(other.stop)
				}
				others.Wait()
			}
		})
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Errorf("it has not ended after a minute, behind %d", n)
	}
	for _, other := range servers[1:] {
		other.start()
	}
	if got := recalled(t, next, from); len(got) < events {
		t.Errorf("recalled %d, want %d", len(got), events)
	}
}
