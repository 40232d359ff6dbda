package nats_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// testServer is a NATS server that can be stopped and started again on the same port and store.
type testServer struct {
	t      testing.TB
	opts   server.Options
	owners sinks.Owners // of all sinks of the test

	mu sync.Mutex // guards running
	s  *server.Server
}

func newTestServer(t testing.TB, change ...func(*server.Options)) *testServer {
	t.Helper()
	ts := &testServer{t: t, opts: server.Options{
		Host: "127.0.0.1", Port: testkit.Port(t), JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true,
	}}
	for _, c := range change {
		c(&ts.opts)
	}
	ts.start()
	t.Cleanup(ts.stop)
	return ts
}

func (ts *testServer) start() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	opts := ts.opts
	s, err := server.NewServer(&opts)
	if err != nil {
		ts.t.Fatalf("nats-server: %v", err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		ts.t.Fatal("nats-server does not become ready")
	}
	ts.s, ts.opts.Port = s, opts.Port
}

func (ts *testServer) stop() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.s.Shutdown()
	ts.s.WaitForShutdown()
}

func (ts *testServer) restart() {
	ts.stop()
	ts.start()
}

// reload changes the options of the running server, as an administrator does.
func (ts *testServer) reload(change func(*server.Options)) {
	ts.t.Helper()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	change(&ts.opts)
	opts := ts.opts
	if err := ts.s.ReloadOptions(&opts); err != nil {
		ts.t.Fatalf("reload: %v", err)
	}
}

// disconnectAll ends all connections, and gives the first place to another client.
func (ts *testServer) disconnectAll(url string) {
	ts.t.Helper()
	ts.stop()
	ts.start()
	nc, err := natsclient.Connect(url)
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(nc.Close)
}

// updateStream changes the settings of a stream, as an administrator does.
func (ts *testServer) updateStream(name string, change func(*jetstream.StreamConfig)) {
	ts.t.Helper()
	js := ts.jetStream()
	found, err := js.Stream(ts.t.Context(), name)
	if err != nil {
		ts.t.Fatal(err)
	}
	config := found.CachedInfo().Config
	change(&config)
	if _, err := js.UpdateStream(ts.t.Context(), config); err != nil {
		ts.t.Fatal(err)
	}
}

func (ts *testServer) url() string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.s.ClientURL()
}

// client is a connection that is not the sink's.
func (ts *testServer) client() *natsclient.Conn {
	ts.t.Helper()
	nc, err := natsclient.Connect(ts.url(), natsclient.Timeout(patience), natsclient.MaxReconnects(-1),
		natsclient.ReconnectWait(20*time.Millisecond))
	if err != nil {
		ts.t.Fatalf("connect: %v", err)
	}
	ts.t.Cleanup(nc.Close)
	return nc
}

func (ts *testServer) jetStream() jetstream.JetStream {
	ts.t.Helper()
	js, err := jetstream.New(ts.client())
	if err != nil {
		ts.t.Fatal(err)
	}
	return js
}

// optionsFor are the defaults, with the addresses of servers with commas between them.
func optionsFor(urls string) nats.Options {
	return nats.Options{
		Config: testkit.WithDefaults(nats.Config{Servers: addresses(urls)}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary},
		Env:    sinks.Env{Cluster: sinktest.Cluster},
	}
}

func addresses(urls string) (list []settings.URL) {
	for url := range strings.SplitSeq(urls, ",") {
		list = append(list, settings.URL(url))
	}
	return list
}

// newSink makes a sink over the server, with the config changed, not yet open.
func (ts *testServer) newSink(change ...func(*nats.Options)) *nats.Sink {
	ts.t.Helper()
	cfg := optionsFor(ts.url())
	cfg.Owners, cfg.Log = &ts.owners, testLog(ts.t)
	for _, c := range change {
		c(&cfg)
	}
	sink, err := nats.New(cfg)
	if err != nil {
		ts.t.Fatalf("new: %v", err)
	}
	return sink
}

func (ts *testServer) openSink(change ...func(*nats.Options)) *nats.Sink {
	ts.t.Helper()
	sink := ts.newSink(change...)
	if err := sink.Open(ts.t.Context()); err != nil {
		ts.t.Fatalf("open: %v", err)
	}
	ts.t.Cleanup(func() { _ = sink.Close() })
	return sink
}

// reopenSink opens a sink whose stream was just deleted. For a moment nats-server may answer 500,
// "error creating store", because it still moves the old store away: tried again, as the bridge
// does.
func (ts *testServer) reopenSink() *nats.Sink {
	ts.t.Helper()
	sink := ts.newSink()
	eventually(ts.t, "open", func() error { return sink.Open(ts.t.Context()) })
	ts.t.Cleanup(func() { _ = sink.Close() })
	return sink
}

func newSinkOver(t testing.TB, url string, change ...func(*nats.Options)) *nats.Sink {
	t.Helper()
	cfg := optionsFor(url)
	for _, c := range change {
		c(&cfg)
	}
	sink, err := nats.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func openOver(t testing.TB, url string, change ...func(*nats.Options)) *nats.Sink {
	t.Helper()
	sink := newSinkOver(t, url, change...)
	eventually(t, "open", func() error { // as a publisher does: a cluster elects a leader meanwhile
		err := sink.Open(t.Context())
		if err != nil && sinks.Classify(err) == sinks.Refused {
			t.Fatal(err)
		}
		return err
	})
	t.Cleanup(func() { _ = sink.Close() })
	return sink
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// storedMessages reads the whole stream, through the API of the server and none of the sink's code.
func storedMessages(t testing.TB, js jetstream.JetStream, stream string) []*jetstream.RawStreamMsg {
	t.Helper()
	var s jetstream.Stream
	eventually(t, "stream "+stream, func() (err error) {
		s, err = js.Stream(t.Context(), stream)
		return err
	})
	state := s.CachedInfo().State
	var messages []*jetstream.RawStreamMsg
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		eventually(t, fmt.Sprint("message ", seq), func() error {
			m, err := s.GetMsg(t.Context(), seq)
			if err == nil {
				messages = append(messages, m)
			}
			return err
		})
	}
	return messages
}

// patience is how long something may take that takes a moment on a machine that does nothing else.
const patience = 2 * time.Minute

// eventually repeats what fails while a cluster chooses a leader, or a replica is behind.
func eventually(t testing.TB, what string, do func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func await(t testing.TB, what string, isTrue func() bool) {
	t.Helper()
	eventually(t, what, func() error {
		if !isTrue() {
			return errors.New("not yet")
		}
		return nil
	})
}

// parse reads a message as the NATS protocol binding says, with the CloudEvents SDK.
func parse(t testing.TB, subject string, header natsclient.Header, data []byte) sinktest.Received {
	t.Helper()
	var r sinktest.Received
	var err error
	if strings.HasPrefix(header.Get("Content-Type"), "application/cloudevents+json") {
		r, err = sinktest.ParseStructured(data)
	} else {
		attributes := map[string]string{}
		for name, values := range header {
			if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
				if attributes[attribute], err = url.PathUnescape(values[0]); err != nil {
					t.Fatalf("header %s: %v", name, err)
				}
			}
		}
		r, err = sinktest.ParseBinary(attributes, data)
	}
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	r.Destination = subject
	return r
}

// call is one Publish call.
func call(t testing.TB, sink sinks.Sink, events ...*event.Event) []*sinks.Message {
	t.Helper()
	batch := make([]*sinks.Message, len(events))
	for i, e := range events {
		batch[i] = &sinks.Message{Event: e}
	}
	sink.Publish(t.Context(), batch)
	return batch
}

func mustStore(t testing.TB, sink sinks.Sink, events ...*event.Event) {
	t.Helper()
	for _, m := range call(t, sink, events...) {
		if m.Err != nil {
			t.Fatalf("publish %s: %v", m.Event.ID, m.Err)
		}
	}
}

// patiently repeats what may heal. What only an operator can heal is repeated by the operator.
func patiently(t *testing.T, do func() error) {
	t.Helper()
	eventually(t, "an answer without an error", func() error {
		err := do()
		if err != nil && sinks.Classify(err) == sinks.Stopped {
			t.Fatal(err)
		}
		return err
	})
}

// storePatiently sends messages again as the publisher does: of a sink whose patience is short.
func storePatiently(t *testing.T, sink *nats.Sink, events ...*event.Event) {
	t.Helper()
	for _, e := range events {
		patiently(t, func() error { return call(t, sink, e)[0].Err })
	}
}

func wantClass(t testing.TB, err error, class sinks.Class) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %v", class)
	}
	if got := sinks.Classify(err); got != class {
		t.Errorf("%v\nis %v, want %v", err, got, class)
	}
}
