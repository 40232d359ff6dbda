package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestHostileBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for name, lie := range generalLies() {
		t.Run("acks: "+name, func(t *testing.T) { lieAboutAcks(t, plain, lie) })
	}
	for name, lie := range generalLies() {
		t.Run("answers: "+name, func(t *testing.T) { lieAboutStream(t, plain, lie, open, recall) })
	}
	for name, lie := range answerLies() {
		t.Run("a fence: "+name, func(t *testing.T) { lieAboutFence(t, lie) })
		t.Run("a bucket: "+name, func(t *testing.T) { lieAboutBucket(t, lie) })
		t.Run("large payloads: "+name, func(t *testing.T) { lieAboutPayloads(t, lie) })
		if !strings.HasPrefix(name, "an INFO") { // then it is asked in vain, and taken for stored
			t.Run("a duplicate: "+name, func(t *testing.T) { lieAboutDuplicate(t, lie) })
		}
	}
	for name, lie := range ackLies() {
		t.Run("acks: "+name, func(t *testing.T) {
			strays := lieAboutAcks(t, plain, lie)
			if isError := strings.HasPrefix(name, "that") ||
				strings.HasPrefix(name, "of another expected"); strays == 0 && !isError {
				t.Error("no answer was found to be a lie")
			}
		})
	}
	for name, change := range map[string][2]string{
		"a stream that has come to the end": {`"last_seq":`, `"last_seq":18446744073709551615,"x":`},
		"a stream before its beginning":     {`"last_seq":`, `"last_seq":-5,"x":`},
		"a stream of other messages":        {`"messages":`, `"messages":-1,"x":`},
		"a stream of -3 replicas":           {`"num_replicas":`, `"num_replicas":-3,"x":`},
		"a stream of no type":               {`"config":`, `"config":7,"x":`},
		"a stream that forgets at once":     {`"duplicate_window":`, `"duplicate_window":-1,"x":`},
		"a stream of tiny messages": {
			`"max_msg_size":`,
			`"max_msg_size":-9223372036854775808,"x":`,
		},
	} {
		t.Run("answers: "+name, func(t *testing.T) {
			lieAboutStream(t, plain, func(m message) []byte {
				return m.saying(strings.Replace(string(m.payload), change[0], change[1], 1))
			}, open)
		})
	}
}

// What a server announces is bounded in TLS and in WebSockets too.
func TestHostileAnnouncements(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for protocol, w := range wires(t) {
		for _, name := range []string{"a message of 2 GiB", "a message of 2^62 bytes"} {
			t.Run(protocol+": "+name, func(t *testing.T) {
				lieAboutAcks(t, w, announcements()[name])
			})
		}
	}
}

func TestHostileCompression(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	lieAboutAcks(t, overWebSocket(t, "ws", nil), raw(string(bomb())))
}

// maxHarm is what a server's lies may make the process allocate, all in all.
const maxHarm = 64 << 20

// lieAboutAcks lies about the acks of some messages. All are stored in the end, in order, and the
// sink knows where the stream is. It gives how many acks were not believed.
func lieAboutAcks(t *testing.T, w wire, lie func(message) []byte) (strays float64) {
	t.Helper()
	ts := newTestServer(t, w.server)
	l := newLiarOver(t, w, w.target(&ts.opts))
	registry := prometheus.NewRegistry()
	sink := ts.newSink(l.use, ackTimeout(100*time.Millisecond), quick,
		func(c *nats.Options) { c.Registry = registry })
	t.Cleanup(func() { _ = sink.Close() })
	patiently(t, func() error { return sink.Open(t.Context()) })
	storePatiently(t, sink, ev("a", 1)) // an ack may be late on a busy machine
	storePatiently(t, sink, ev("b", 1))
	l.answer(acks, 3, lie)
	harm := testkit.Allocated(func() {
		for version := 2; version <= 4; version++ {
			storePatiently(t, sink, ev("a", version))
		}
	})
	l.requireLies(t)
	if lies := l.lies(); harm > maxHarm {
		t.Errorf("%d lies allocated %d MiB", lies, harm>>20)
	}
	l.answer(acks, 0, nil)
	newest := 4
	// Only an ack of the first attempt says where the stream is: a repeat is a duplicate.
	eventually(t, "an ack in time", func() error {
		newest++
		err := call(t, sink, ev("a", newest))[0].Err
		if err != nil {
			storePatiently(t, sink, ev("a", newest))
		}
		return err
	})
	requireVersions(t, ts, newest)
	stream, err := ts.jetStream().Stream(t.Context(), "K8S")
	if err != nil {
		t.Fatal(err)
	}
	if last := fmt.Sprintf(`"last":%d}`,
		stream.CachedInfo().State.LastSeq); !strings.Contains(string(sink.Position()), last) {
		t.Errorf("position %s, want %s", sink.Position(), last)
	}
	for name, value := range testkit.Metrics(t, registry) {
		if strings.HasPrefix(name, "bridge_nats_stray_acks_total") {
			strays += value
		}
	}
	return strays
}

// question is what a sink asks of a server, beside the acks of what it publishes.
type question func(ctx context.Context, sink *nats.Sink, position []byte) error

func open(ctx context.Context, sink *nats.Sink, _ []byte) error { return sink.Open(ctx) }

func recall(ctx context.Context, sink *nats.Sink, position []byte) error {
	return sink.ReadBack(ctx, position, func(string) {})
}

var large = sinktest.NewEvent("web", 1, 256<<10)

func claim(ctx context.Context, sink *nats.Sink, _ []byte) error {
	_, err := sink.Claim(ctx, large)
	return err
}

// lieAbout lies about the answers to each question of a sink. In the end the sink works. It gives
// the server, whose stream has two versions of object a from before, and which got the third.
func lieAbout(
	t *testing.T, w wire, of func(*nats.Options), lie func(message) []byte, asked ...question,
) *testServer {
	t.Helper()
	ts := newTestServer(t, w.server)
	before := ts.openSink()
	mustStore(t, before, ev("a", 1))
	position := before.Position()
	mustStore(t, before, ev("a", 2))
	l := newLiarOver(t, w, w.target(&ts.opts))
	sink := ts.newSink(l.use, ackTimeout(100*time.Millisecond), quick, of)
	t.Cleanup(func() { _ = sink.Close() })
	for _, ask := range asked {
		l.answer(answers, 3, lie)
		harm := testkit.Allocated(func() {
			patiently(t, func() error { return ask(t.Context(), sink, position) })
		})
		l.requireLies(t)
		if harm > maxHarm {
			t.Errorf("%d MiB were allocated", harm>>20)
		}
		l.answer(acks, 0, nil)
	}
	storePatiently(t, sink, ev("a", 3))
	return ts
}

func lieAboutStream(t *testing.T, w wire, lie func(message) []byte, asked ...question) {
	requireVersions(t, lieAbout(t, w, func(*nats.Options) {}, lie, asked...), 3)
}

func lieAboutFence(t *testing.T, lie func(message) []byte) {
	requireVersions(t, lieAbout(t, plain, new(office).of(0), lie, open), 3)
}

func lieAboutBucket(t *testing.T, lie func(message) []byte) {
	ts := lieAbout(t, plain, inBucket, lie, open)
	wantEntries(t, ts.jetStream(), map[string]string{key + "a": "3"})
}

func lieAboutPayloads(t *testing.T, lie func(message) []byte) {
	requireVersions(t, lieAbout(t, plain, withBucket, lie, open, claim), 3)
}

// lieAboutDuplicate lies about the message that has the id of a delete which is published: whatever
// the server says of it, the delete is stored.
func lieAboutDuplicate(t *testing.T, lie func(message) []byte) {
	t.Helper()
	ts := newTestServer(t)
	l := newLiar(t, ts.url())
	// A message whose ack is late is in doubt, and then it is not asked for.
	sink := ts.newSink(l.use, ackTimeout(5*time.Second), quick)
	t.Cleanup(func() { _ = sink.Close() })
	patiently(t, func() error { return sink.Open(t.Context()) })
	end := deleted("a")
	forge(t, ts, "k8s.test.junk", end.Informer+"/"+end.ID, nil)
	l.answer(answers, 2, lie)
	harm := testkit.Allocated(func() { storePatiently(t, sink, end) })
	l.requireLies(t)
	l.answer(acks, 0, nil)
	if harm > maxHarm {
		t.Errorf("%d MiB were allocated", harm>>20)
	}
	found := 0
	for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
		if m.Header.Get("ce-id") == end.ID {
			found++
		}
	}
	if found == 0 {
		t.Error("the delete is not in the stream")
	}
}

// quick shortens the waits for a server that does not answer.
func quick(c *nats.Options) { c.Timeout = 200 * time.Millisecond }

// requireVersions fails unless the stream has the versions of object a in order.
func requireVersions(t *testing.T, ts *testServer, n int) {
	t.Helper()
	var got, want []string
	for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
		if id := m.Header.Get("ce-id"); strings.HasPrefix(id, "uid-a/") {
			got = append(got, id)
		}
	}
	for version := 1; version <= n; version++ {
		want = append(want, fmt.Sprint("uid-a/", version))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("stored %v, want %v", got, want)
	}
}

// deleted is the end of an object.
func deleted(name string) *event.Event {
	e := ev(name, 9)
	e.ID, e.Op, e.Type = "uid-"+name+"/deleted", event.Deleted, "dev.kubebridge.resource.deleted"
	return e
}

// forge publishes a message under the id of an event to come.
func forge(t *testing.T, ts *testServer, subject, id string, data []byte) {
	t.Helper()
	m := natsclient.NewMsg(subject)
	m.Data = data
	m.Header.Set("Nats-Msg-Id", id)
	if _, err := ts.jetStream().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestForgedDuplicate(t *testing.T) {
	gone := deleted("a")
	id := gone.Informer + "/" + gone.ID
	for name, data := range map[string][]byte{"an empty message": nil, "a message with the same payload": gone.Data} {
		t.Run(name+" does not hide a delete", func(t *testing.T) {
			ts := newTestServer(t)
			registry := prometheus.NewRegistry()
			sink := ts.openSink(func(c *nats.Options) { c.Registry = registry })
			mustStore(t, sink, ev("a", 1))
			forge(t, ts, "k8s.test.junk", id, data)
			mustStore(t, sink, gone)
			found := 0
			for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
				if m.Header.Get("ce-id") == gone.ID && m.Header.Get("ce-type") == gone.Type {
					found++
				}
			}
			if got := testkit.Metrics(t, registry)["bridge_nats_unexpected_duplicates_total "+
				"forged"]; found != 1 || got != 1 {
				t.Errorf("the delete is there %d times, and counted %v times", found, got)
			}
			var recalled []string
			if err := sink.ReadBack(t.Context(), []byte(`{"format":1,"streams":[]}`),
				func(id string) { recalled = append(recalled, id) }); err != nil {
				t.Fatal(err)
			}
			if len(recalled) != 2 || recalled[1] != id {
				t.Errorf("recalled %q", recalled)
			}
		})
	}
	t.Run("what an earlier process has sent is not sent again", func(t *testing.T) {
		ts := newTestServer(t)
		first := ts.openSink()
		mustStore(t, first, gone)
		_ = first.Close()
		registry := prometheus.NewRegistry()
		mustStore(t, ts.openSink(func(c *nats.Options) { c.Registry = registry }), deleted("a"))
		if n := len(storedMessages(t, ts.jetStream(), "K8S")); n != 1 {
			t.Errorf("%d messages are stored", n)
		}
		if got := testkit.Metrics(t, registry)["bridge_nats_unexpected_duplicates_total "+
			"checked"]; got != 1 {
			t.Errorf("counted %v", got)
		}
	})
	t.Run("a replica that is behind has not lost it", func(t *testing.T) {
		ts := newTestServer(t)
		first := ts.openSink()
		mustStore(t, first, gone)
		_ = first.Close()
		l := newLiar(t, ts.url())
		sink := ts.openSink(l.use)
		wasBehind := false
		l.answer(answers, 10, func(m message) []byte {
			if !wasBehind && bytes.Contains(m.payload, []byte("Nats-Sequence: ")) {
				wasBehind = true
				const notFound = "NATS/1.0 404 Message Not Found\r\n\r\n"
				to := strings.Join(strings.Fields(m.line)[:3], " ")
				return fmt.Appendf(nil, "%s %d %[2]d\r\n%s\r\n", to, len(notFound), notFound)
			}
			return m.saying(strings.ReplaceAll(string(m.payload), `"num_replicas":1`, `"num_replicas":3`))
		})
		mustStore(t, sink, deleted("a"))
		if n := len(storedMessages(t, ts.jetStream(), "K8S")); n != 1 || !wasBehind {
			t.Errorf("%d messages are stored; a replica was behind: %v", n, wasBehind)
		}
	})
	t.Run("it is sent again after an ack that was lost", func(t *testing.T) {
		ts := newTestServer(t)
		l := newLiar(t, ts.url())
		sink := ts.openSink(l.use, ackTimeout(3*time.Second))
		forge(t, ts, "k8s.test.junk", id, nil)
		lost := 0
		l.answer(acks, 2, func(m message) []byte { // the second: of the message under its other id
			if lost++; lost == 1 {
				return m.saying(string(m.payload))
			}
			return nil
		})
		wantClass(t, call(t, sink, deleted("a"))[0].Err, sinks.Retry)
		storePatiently(t, sink, deleted("a"))
		found := 0
		for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
			if bytes.Equal(m.Data, gone.Data) && m.Header.Get("ce-id") == gone.ID {
				found++
			}
		}
		if found == 0 {
			t.Error("the delete is not there")
		}
	})
}

func TestEarlyAck(t *testing.T) {
	before, after := nats.AnswerBeforeSending()
	if before != "foreign" || after != "taken" {
		t.Errorf("before the message was written its ack is %s, then %s", before, after)
	}
}

// Somebody posts on the fence again and again.
func TestContestedFence(t *testing.T) {
	ts := newTestServer(t)
	_ = ts.openSink().Close() // makes the stream
	var asked []time.Time
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	contested := func(c *nats.Options) {
		c.Fence = &sinks.Fence{Name: "test", Confirm: func(ctx context.Context) error {
			if asked = append(asked, time.Now()); len(asked) == 4 {
				cancel()
			}
			js, err := jetstream.New(ts.client())
			if err == nil {
				_, err = js.Publish(ctx, "k8s.test._fence.test.bridge_0", nil)
			}
			return err
		}}
	}
	if err := ts.newSink(contested,
		func(c *nats.Options) { c.Name = "bridge" }).Open(ctx); err == nil {
		t.Fatal("it has opened")
	}
	if len(asked) != 4 {
		t.Errorf("the API server was asked %d times, want 4", len(asked))
	}
	for i := range asked[1:] {
		if pause := asked[i+1].Sub(asked[i]); pause < 250*time.Millisecond<<i {
			t.Errorf("it was asked again after %v", pause)
		}
	}
}
