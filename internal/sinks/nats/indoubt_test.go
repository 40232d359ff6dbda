package nats_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// shortMemory is a stream that forgets ids at once, as every stream has after an outage that was
// long enough.
func shortMemory(c *nats.Options) { c.Stream.DuplicateWindow = 200 * time.Millisecond }

// storedIDs are the ids of the stream in its order.
func storedIDs(t *testing.T, ts *testServer, stream string) (ids []string) {
	t.Helper()
	for _, m := range storedMessages(t, ts.jetStream(), stream) {
		ids = append(ids, m.Header.Get("Nats-Msg-Id"))
	}
	return ids
}

// The stream has forgotten a message when its answer is given up, as it may where the timeout of an
// answer is longer than half of the duplicates window.
func TestLateTimeout(t *testing.T) {
	ts := newTestServer(t)
	proxy := newProxy(t, ts.url())
	sink := openOver(t, proxy.url(), shortMemory, ackTimeout(300*time.Millisecond))
	storePatiently(t, sink, ev("a", 1))
	proxy.mute(true)
	wantClass(t, call(t, sink, ev("a", 2))[0].Err, sinks.Retry)
	proxy.cut()
	storePatiently(t, sink, ev("a", 2))
	want := []string{ev("a", 1).MessageID(), ev("a", 2).MessageID()}
	if got := storedIDs(t, ts, "K8S"); !slices.Equal(got, want) {
		t.Errorf("the stream holds %q, want %q", got, want)
	}
}

func TestLostAck(t *testing.T) {
	for name, change := range map[string]func(*nats.Options){
		"one stream":      func(*nats.Options) {},
		"several streams": severalStreams,
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t)
			proxy := newProxy(t, ts.url())
			sink := openOver(t, proxy.url(), shortMemory, ackTimeout(300*time.Millisecond), change)
			mustMeet(t, sink, ev("a", 1))
			storePatiently(t, sink, ev("a", 1), ev("b", 1))
			proxy.mute(true)
			for _, m := range call(t, sink, ev("a", 2), ev("b", 2), ev("c", 1)) {
				wantClass(t, m.Err, sinks.Retry)
			}
			time.Sleep(500 * time.Millisecond) // the stream has forgotten them
			proxy.cut()
			left := []*event.Event{ev("a", 2), ev("b", 2), ev("c", 1), ev("d", 1)}
			eventually(t, "publish", func() error {
				for _, m := range call(t, sink, left...) {
					if m.Err != nil {
						return m.Err
					}
				}
				return nil
			})
			storePatiently(t, sink, ev("a", 3))
			stream := "K8S"
			if name == "several streams" {
				stream = "K8S-test-deployments"
			}
			got := storedIDs(t, ts, stream)
			slices.Sort(got)
			var want []string
			for _, e := range []*event.Event{
				ev("a", 1), ev("a", 2), ev("a", 3), ev("b", 1),
				ev("b", 2), ev("c", 1), ev("d", 1),
			} {
				want = append(want, e.MessageID())
			}
			if !slices.Equal(got, want) {
				t.Errorf("the stream holds %q\nwant %q", got, want)
			}
		})
	}
}

// A stream that others write to as well: what it has stored since can't be read while one call
// lasts.
func TestLongSearch(t *testing.T) {
	ts := newTestServer(t)
	proxy := newProxy(t, ts.url())
	sink := openOver(t, proxy.url(), shortMemory, ackTimeout(2*time.Second))
	mustStore(t, sink, ev("a", 1))
	others := ts.client()
	js, err := jetstream.New(others)
	if err != nil {
		t.Fatal(err)
	}
	for range 12_000 { // some 1 MB to read
		if err := others.Publish("k8s.test.other", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "k8s.test.other", nil); err != nil { // behind them
		t.Fatal(err)
	}
	proxy.mute(true)
	for _, m := range call(t, sink, ev("a", 2), ev("b", 1)) {
		wantClass(t, m.Err, sinks.Retry)
	}
	time.Sleep(200 * time.Millisecond) // the stream has forgotten them
	proxy.cut()
	await(t, "the sink sees the cut", func() bool { return sink.Blocked() != nil })
	eventually(t, "it is connected again", sink.Blocked)
	proxy.slowDown()
	looks, began := 0, time.Now()
	for version := 1; ; version++ {
		m := call(t, sink, ev("a", 2), ev("z", version))
		if m[1].Err != nil && looks > 0 {
			t.Fatalf("another message was held up: %v", m[1].Err)
		}
		if m[0].Err == nil {
			break
		}
		wantClass(t, m[0].Err, sinks.Retry)
		looks++
		if time.Since(began) > patience {
			t.Fatalf("after %d looks: %v", looks, m[0].Err)
		}
	}
	if looks < 2 {
		t.Fatalf("%d looks: this test has tested nothing", looks)
	}
	mustStore(t, sink, ev("b", 1)) // found by the same look
	t.Logf("%d calls looked", looks+1)
	stream, err := js.Stream(t.Context(), "K8S")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("k8s.test.>"))
	if err != nil {
		t.Fatal(err)
	}
	for subject, n := range info.State.Subjects {
		if want := map[bool]uint64{true: 2, false: 1}[strings.Contains(subject,
			".a.")]; n != want && !strings.Contains(subject, ".z.") && subject != "k8s.test.other" {
			t.Errorf("%d messages on %s, want %d", n, subject, want)
		}
	}
}

func TestLostMessage(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(shortMemory, ackTimeout(300*time.Millisecond))
	storePatiently(t, sink, ev("a", 1))
	ts.stop()
	if err := call(t, sink, ev("a", 2))[0].Err; err == nil {
		t.Fatal("stored without a server")
	}
	time.Sleep(300 * time.Millisecond)
	ts.start()
	eventually(t, "publish", func() error { return call(t, sink, ev("a", 2))[0].Err })
	if got := storedIDs(t, ts, "K8S"); len(got) != 2 {
		t.Errorf("the stream holds %q", got)
	}
}

func TestRunID(t *testing.T) {
	ts := newTestServer(t)
	s := ts.openSink()
	e := sinktest.NewEvent("web", 1, 100)
	for _, run := range []string{"/one", "/one", "/two"} {
		e.Run = run
		mustStore(t, s, e)
	}
	if n := len(storedMessages(t, ts.jetStream(), "K8S")); n != 2 {
		t.Errorf("%d messages are stored, want one for each run", n)
	}
}
