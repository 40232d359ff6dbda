package nats_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// ev is a small event.
func ev(name string, version int) *event.Event { return sinktest.NewEvent(name, version, 300) }

func ackTimeout(d time.Duration) func(*nats.Options) {
	return func(c *nats.Options) { c.AckTimeout = d }
}

// inBackground runs one Publish call and returns a function that waits for its answers.
func inBackground(t *testing.T, sink sinks.Sink, events ...*event.Event) (answers func() []error) {
	done := make(chan []error, 1)
	go func() {
		var errs []error
		for _, m := range call(t, sink, events...) {
			errs = append(errs, m.Err)
		}
		done <- errs
	}()
	return func() []error {
		t.Helper()
		select {
		case errs := <-done:
			return errs
		case <-time.After(20 * time.Second):
			t.Fatal("Publish has not returned after 20s")
			return nil
		}
	}
}

func TestAckOrder(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	answers := inBackground(t, ts.openSink(unmanaged), ev("a", 1), ev("b", 1), ev("c", 1))
	a, b, c := r.next(), r.next(), r.next()
	r.ack(c)
	r.refuse(a, 10097, "header size exceeds maximum allowed of 64k")
	r.reply(b, `{"stream":"K8S","seq":5,"duplicate": true}`)
	errs := answers()
	wantClass(t, errs[0], sinks.Refused)
	if errs[1] != nil || errs[2] != nil {
		t.Errorf("answers of b and c: %v", errs[1:])
	}
}

func TestSlowAck(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	sink := ts.openSink(unmanaged, ackTimeout(time.Second))
	answers := inBackground(t, sink, ev("a", 1), ev("b", 1))
	a := r.next()
	time.Sleep(150 * time.Millisecond)
	r.ack(a)
	errs := answers()
	if errs[0] != nil {
		t.Errorf("slow but in time: %v", errs[0])
	}
	wantClass(t, errs[1], sinks.Retry)
	if !errors.Is(errs[1], nats.ErrAckTimeout) {
		t.Errorf("%v is not ErrAckTimeout", errs[1])
	}
}

func TestNoResend(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	sink := ts.openSink(unmanaged, ackTimeout(200*time.Millisecond))
	wantClass(t, call(t, sink, ev("a", 1))[0].Err, sinks.Retry)
	r.next()
	time.Sleep(300 * time.Millisecond)
	if ids := r.ids(); !slices.Equal(ids, []string{"workloads/uid-a/1"}) {
		t.Errorf("the stream was sent %v, want the message once", ids)
	}
}

// A late ack says that its own message is stored. Credited to another one, which has the same
// number in a later call, it would make the publisher forget a message that nobody has.
func TestLateAck(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	sink := ts.openSink(unmanaged, ackTimeout(200*time.Millisecond))
	var late []*natsclient.Msg
	for i := range 3 {
		wantClass(t, call(t, sink, ev("late", i))[0].Err, sinks.Retry)
		late = append(late, r.next())
	}
	for i := range 300 { // more calls than the table has slots, so that each slot is used again
		answers := inBackground(t, sink, ev("a", i))
		own := r.next()
		for _, m := range late {
			r.refuse(m, 10054, "late")
		}
		r.ack(own)
		// a timeout on a busy machine is none of our business
		if err := answers()[0]; sinks.Classify(err) == sinks.Refused {
			t.Fatalf("call %d was answered by an ack of an earlier one: %v", i, err)
		}
	}
}

// A server that acknowledges later than the timeout allows is believed: without that, each event
// would be sent until the stream is searched for it.
func TestSlowServer(t *testing.T) {
	ts := newTestServer(t)
	p := newProxy(t, ts.url())
	sink := openOver(t, p.url(), ackTimeout(300*time.Millisecond))
	mustStore(t, sink, ev("a", 1))
	p.delayBy(time.Second)
	pending, attempts := []*event.Event{ev("a", 2), ev("b", 1)}, 0
	for ; len(pending) > 0 && attempts < 12; attempts++ {
		batch := call(t, sink, pending...)
		pending = nil
		for _, m := range batch {
			if m.Err != nil {
				pending = append(pending, m.Event)
			}
		}
	}
	if len(pending) > 0 { // acks come from the fourth attempt on
		t.Errorf("no answer to %d events in %d attempts", len(pending), attempts)
	}
	p.delayBy(0)
	eventually(t, "the next one follows", func() error { return call(t, sink, ev("a", 3))[0].Err })
	if got := storedIDs(t, ts, "K8S"); !slices.Equal(got, []string{
		"workloads/uid-a/1", "workloads/uid-a/2", "workloads/uid-b/1", "workloads/uid-a/3",
	}) {
		t.Errorf("the stream has %v", got)
	}
}

func TestRepeatedAck(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	answers := inBackground(t, ts.openSink(unmanaged, ackTimeout(time.Minute)), ev("a", 1), ev("b", 1))
	a, b := r.next(), r.next()
	r.ack(a)
	r.ack(a)
	r.refuse(b, 10097, "header size exceeds maximum allowed of 64k")
	errs := answers()
	if errs[0] != nil {
		t.Errorf("acknowledged twice: %v", errs[0])
	}
	wantClass(t, errs[1], sinks.Refused)
}

// Functions subscribe to the events and answer them: a reply that is no ack must not end the wait
// for the stream's.
func TestForeignAnswer(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	answers := inBackground(t, ts.openSink(unmanaged), ev("a", 1))
	m := r.next()
	r.reply(m, "thanks")
	r.reply(m, "")
	r.reply(m, `{"error":"my own format"}`)
	r.refuse(m, 10077, "no space left on device")
	wantClass(t, answers()[0], sinks.Retry)
}

func TestBrokenConnection(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	registry := prometheus.NewRegistry()
	sink := ts.openSink(unmanaged, ackTimeout(time.Minute),
		func(c *nats.Options) { c.Registry = registry })
	answers := inBackground(t, sink, ev("a", 1), ev("b", 1))
	r.next()
	b := r.next()
	r.ack(b)
	r.ack(b) // the second one is counted after the first was taken
	eventually(t, "the acks", func() error {
		if testkit.Metrics(t, registry)["bridge_nats_stray_acks_total late"] == 0 {
			return errors.New("they have not arrived")
		}
		return nil
	})
	began := time.Now()
	ts.stop()
	errs := answers()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	wantClass(t, errs[0], sinks.Reconnect)
	if errs[1] != nil {
		t.Errorf("acknowledged before: %v", errs[1])
	}
}

func TestPublishContext(t *testing.T) {
	ts := newTestServer(t)
	r := newResponder(t, ts)
	sink := ts.openSink(unmanaged, ackTimeout(time.Minute))
	for name, newContext := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, cancel)
			return ctx, cancel
		},
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 3*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := newContext()
			defer cancel()
			m := &sinks.Message{Event: ev("a", 1)}
			sink.Publish(ctx, []*sinks.Message{m})
			wantClass(t, m.Err, sinks.Stopped)
			if !errors.Is(m.Err, ctx.Err()) {
				t.Errorf("%v is not %v", m.Err, ctx.Err())
			}
			r.next()
		})
	}
}

func TestNoStream(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(ackTimeout(time.Minute))
	mustStore(t, sink, ev("a", 1))
	if err := ts.jetStream().DeleteStream(t.Context(), "K8S"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := call(t, sink, ev("a", 2))[0].Err
	wantClass(t, err, sinks.Retry)
	if !errors.Is(err, nats.ErrNoStream) || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %v, want ErrNoStream at once", time.Since(began), err)
	}
	ts.reopenSink() // makes the stream again
	// The new stream begins at 1 again: that contradicts what was known of the old one.
	wantClass(t, call(t, sink, ev("a", 2))[0].Err, sinks.Retry)
	mustStore(t, sink, ev("a", 2))
	mustStore(t, sink, ev("a", 3))
}

func TestPublishWithoutOpen(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.newSink()
	wantClass(t, call(t, sink, ev("a", 1))[0].Err, sinks.Reconnect)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustStore(t, sink, ev("a", 1))
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	wantClass(t, call(t, sink, ev("a", 2))[0].Err, sinks.Reconnect)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatalf("a closed sink opens again: %v", err)
	}
	mustStore(t, sink, ev("a", 2))
	_ = sink.Close()
}

func TestMissingAckReason(t *testing.T) {
	ts := newTestServer(t, withUser("bridge", "secret", denyPublish("k8s.>")))
	sink := ts.openSink(unmanaged, ackTimeout(2*time.Second), func(c *nats.Options) {
		c.Username, c.Password = "bridge", "secret"
	})
	wantNamed(t, "k8s.", func() error {
		err := call(t, sink, ev("a", 1))[0].Err
		wantClass(t, err, sinks.Retry)
		return err
	})
}
