package nats_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// formerLeader publishes as a leader of a version did whose fences bore no sink's name.
type formerLeader struct {
	t    *testing.T
	js   jetstream.JetStream
	post string
	seq  uint64
}

func newFormerLeader(t *testing.T, js jetstream.JetStream, post string) *formerLeader {
	t.Helper()
	ack, err := js.Publish(t.Context(), post, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &formerLeader{t, js, post, ack.Sequence}
}

func (l *formerLeader) publish(id string) error {
	m := natsclient.NewMsg("k8s.test.x." + id)
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(l.seq, 10))
	m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", l.post)
	_, err := l.js.PublishMsg(l.t.Context(), m)
	return err
}

func TestALeaderOfAnEarlierVersionIsTurnedAway(t *testing.T) {
	fences(t, func(t *testing.T, url string, js jetstream.JetStream) {
		var o office
		_ = openOver(t, url).Close() // makes the stream
		old := newFormerLeader(t, js, "k8s.test._fence.test.7")
		if err := old.publish("a"); err != nil {
			t.Fatal(err)
		}
		sink := openOver(t, url, o.of(0))
		mustStore(t, sink, ev("a", 1))
		if err := old.publish("b"); err == nil {
			t.Error("the former leader has stored something")
		}
		_ = sink.Close()
		_ = openOver(t, url, o.of(0)).Close()
		posts := 0
		for _, m := range storedMessages(t, js, "K8S") {
			if m.Subject == old.post {
				posts++
			}
		}
		if posts != 2 { // its own, and the one that has shut it
			t.Errorf("the former fence has %d messages, want 2: it is shut once", posts)
		}
		// The earlier version came back in between, and led.
		again := newFormerLeader(t, js, "k8s.test._fence.test.7")
		_ = openOver(t, url, o.of(0))
		if err := again.publish("c"); err == nil {
			t.Error("the leader that came back has stored something")
		}
	})
}

func TestWhoMayNotPublishShutsNoFence(t *testing.T) {
	ts := newTestServer(t)
	_ = ts.openSink().Close()
	old := newFormerLeader(t, ts.jetStream(), "k8s.test._fence.test.0")
	asked := 0
	lost := func(c *nats.Config) { // after it has taken its own fence
		c.Fence = &nats.Fence{Name: "test", Confirm: func(context.Context) error {
			if asked++; asked > 1 {
				return errNotHolder
			}
			return nil
		}}
	}
	if err := ts.newSink(lost).Open(t.Context()); !errors.Is(err, errNotHolder) {
		t.Errorf("got %v", err)
	}
	if err := old.publish("a"); err != nil {
		t.Error(err)
	}
}
