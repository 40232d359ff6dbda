package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// office says which of several processes may publish.
type office struct{ holder atomic.Int32 }

var errNotHolder = errors.New("another one holds the office")

// of is the fence of the process with a number.
func (o *office) of(number int32) func(*nats.Options) {
	return func(c *nats.Options) {
		c.Fence = &sinks.Fence{Name: "test", Confirm: func(context.Context) error {
			if o.holder.Load() != number {
				return errNotHolder
			}
			return nil
		}}
	}
}

// fences are the streams that a fence is tested with: of one replica, and of three.
func fences(t *testing.T, test func(t *testing.T, url string, js jetstream.JetStream)) {
	t.Run("one replica", func(t *testing.T) {
		ts := newTestServer(t)
		test(t, ts.url(), ts.jetStream())
	})
	t.Run("three replicas", func(t *testing.T) {
		servers := newTestCluster(t)
		test(t, servers[0].url(), servers[1].jetStream())
	})
}

// storedEvents are the ids of the events in the stream, without what makes the fence.
func storedEvents(t *testing.T, js jetstream.JetStream) (ids []string) {
	t.Helper()
	for _, m := range storedMessages(t, js, "K8S") {
		if !strings.Contains(m.Subject, "._fence.") {
			ids = append(ids, m.Header.Get("ce-id"))
		}
	}
	return ids
}

// countEvents is how many storedEvents there are.
func countEvents(t *testing.T, js jetstream.JetStream) (n int) {
	t.Helper()
	eventually(t, "count", func() error {
		stream, err := js.Stream(t.Context(), "K8S")
		if err != nil {
			return err
		}
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("k8s.test._fence.>"))
		if err != nil {
			return err
		}
		n = int(info.State.Msgs)
		for _, fences := range info.State.Subjects {
			n -= int(fences)
		}
		return nil
	})
	return n
}

func TestSucceededProcess(t *testing.T) {
	fences(t, func(t *testing.T, url string, js jetstream.JetStream) {
		var o office
		first := openOver(t, url, o.of(0))
		mustStore(t, first, ev("a", 1), ev("b", 2))
		o.holder.Store(1)
		second := openOver(t, url, o.of(1))
		// It knows nothing of that yet.
		for _, m := range call(t, first, ev("a", 3), ev("b", 4)) {
			wantClass(t, m.Err, sinks.Reconnect)
		}
		// Now it asks.
		m := call(t, first, ev("a", 3))[0]
		wantClass(t, m.Err, sinks.Reconnect)
		if !errors.Is(m.Err, errNotHolder) {
			t.Errorf("got %v", m.Err)
		}
		mustStore(t, second, ev("a", 5))
		if ids := storedEvents(t, js); len(ids) != 3 {
			t.Errorf("stored %v, want the two of the first and the one of the second", ids)
		}
	})
}

func TestFenceTakenMeanwhile(t *testing.T) {
	ts := newTestServer(t)
	var o office
	var second *nats.Sink
	once := sync.OnceFunc(func() { // in the moment between the look and the taking
		o.holder.Store(1)
		second = openOver(t, ts.url(), o.of(1))
	})
	first := ts.newSink(func(c *nats.Options) {
		c.Fence = &sinks.Fence{Name: "test", Confirm: func(context.Context) error {
			if o.holder.Load() != 0 {
				return errNotHolder
			}
			once()
			return nil
		}}
	})
	if err := first.Open(t.Context()); !errors.Is(err, errNotHolder) {
		t.Errorf("got %v, want that another one has it", err)
	}
	mustStore(t, second, ev("a", 1))
}

func TestDroppedFence(t *testing.T) {
	fences(t, func(t *testing.T, url string, js jetstream.JetStream) {
		var o office
		sink := openOver(t, url, o.of(0))
		mustStore(t, sink, ev("a", 1))
		stream, err := js.Stream(t.Context(), "K8S")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context(),
			jetstream.WithPurgeSubject("k8s.test._fence.>")); err != nil {
			t.Fatal(err)
		}
		wantClass(t, call(t, sink, ev("a", 2))[0].Err, sinks.Reconnect)
		mustStore(t, sink, ev("a", 2))
	})
}

func TestFenceConfirm(t *testing.T) {
	ts := newTestServer(t)
	var o office
	first := ts.openSink(o.of(0))
	if err := ts.newSink(o.of(1)).Open(t.Context()); !errors.Is(err, errNotHolder) {
		t.Errorf("got %v", err)
	}
	mustStore(t, first, ev("a", 1))
}

// In a replicated stream the server takes one message at a time that asks for the same subject.
func TestFenceConcurrency(t *testing.T) {
	fences(t, func(t *testing.T, url string, js jetstream.JetStream) {
		var o office
		sink := openOver(t, url, o.of(0))
		limits := sink.Limits()
		const rounds = 20
		var group sync.WaitGroup
		var failed atomic.Int64
		began := time.Now()
		for c := range limits.Concurrency {
			group.Go(func() {
				for r := range rounds {
					events := make([]*event.Event, limits.Messages)
					for i := range events {
						events[i] = ev(fmt.Sprintf("o-%d-%d", c, i), r+1)
					}
					for _, m := range call(t, sink, events...) {
						if m.Err != nil {
							failed.Add(1)
							t.Log(m.Err)
						}
					}
				}
			})
		}
		group.Wait()
		sent := limits.Concurrency * rounds * limits.Messages
		t.Logf("%d messages in %v, %d turned away", sent, time.Since(began).Round(time.Millisecond),
			failed.Load())
		if stored := countEvents(t, js); failed.Load() > 0 || stored != sent {
			t.Errorf("%d of %d are stored, %d were turned away", stored, sent, failed.Load())
		}
	})
}
