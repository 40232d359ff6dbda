package bridge_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// These tests run in real time, since the server's clock is not that of a bubble.

// natsRig is a bridge from a scripted API server to a real NATS server that takes small messages.
type natsRig struct {
	*testkit.Server
	t   *testing.T
	js  jetstream.JetStream
	url string
	// keep is the last resort of the publisher, after a second of refused dead letters; nil for
	// none.
	keep func(e *event.Event, refused, deadLetter error, attempts int) error
	// informer is the name of the informer; "" for all.
	informer string
	// also are other servers that it sends to.
	also []*natsRig
	port int
	dir  string
	stop func()
}

const natsMaxPayload = 20_000

func newNATSRig(t *testing.T) *natsRig {
	t.Helper()
	r := &natsRig{Server: testkit.NewServer(t, pods), t: t, port: testkit.Port(t), dir: t.TempDir()}
	r.serve()
	return r
}

// serve starts the NATS server, with what it had before.
func (r *natsRig) serve() {
	t := r.t
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: r.port, JetStream: true, StoreDir: r.dir, NoSigs: true, NoLog: true, MaxPayload: natsMaxPayload,
	})
	testkit.OK(t, err)
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("nats-server is not ready after 20s")
	}
	nc, err := natsgo.Connect(s.ClientURL(), natsgo.Timeout(time.Minute))
	testkit.OK(t, err)
	js, err := jetstream.New(nc)
	testkit.OK(t, err)
	r.js, r.url = js, s.ClientURL()
	r.stop = sync.OnceFunc(func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	t.Cleanup(r.stop)
}

// run runs a bridge that knows of nothing, until it is stopped or the test ends.
func (r *natsRig) run(oversize []publisher.Oversize, change func(*nats.Options)) (end func()) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	cfg := nats.Options{
		Config: testkit.WithDefaults(nats.Config{Servers: []settings.URL{settings.URL(r.url)}}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary},
		Env:    sinks.Env{Cluster: "test", Log: log},
	}
	if change != nil {
		change(&cfg)
	}
	sink, err := nats.New(cfg)
	testkit.OK(r.t, err)
	db, err := store.Open(statedb.Options{})
	testkit.OK(r.t, err)
	retry := publisher.Retry{Initial: 20 * time.Millisecond, Max: 100 * time.Millisecond}
	bindings := []informer.Binding{{Sink: "nats"}}
	list := []bridge.SinkConfig{{Name: "nats", Sink: sink, KeepsNewest: cfg.Mode == nats.KV, Publisher: publisher.Config{
		Oversize: oversize, Retry: retry, Keep: r.keep, DeadLetterWait: time.Second,
	}}}
	for _, also := range r.also {
		cfg.Servers = []settings.URL{settings.URL(also.url)}
		sink, err := nats.New(cfg)
		testkit.OK(r.t, err)
		bindings = append(bindings, informer.Binding{Sink: also.url})
		list = append(list, bridge.SinkConfig{Name: also.url, Sink: sink, Publisher: publisher.Config{Retry: retry}})
	}
	b, err := bridge.New(bridge.Config{
		Cluster: "test", DB: db, Log: log, Client: &reflector.Client{HTTP: r.HTTP(), Base: r.URL()},
		Units: []informer.Config{{Informer: cmp.Or(r.informer, "all"), Type: pods, Sinks: bindings}},
		Sinks: list,
	})
	testkit.OK(r.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			r.t.Errorf("Run: %v", err)
		}
		_ = db.Close()
	})
	r.t.Cleanup(end)
	return end
}

// put makes a pod whose spec, or whose last-applied annotation, has so many bytes.
func (r *natsRig) put(name string, spec, annotation int) {
	r.Create(resource.MakeKey("shop", name), func(obj map[string]any) {
		obj["spec"] = map[string]any{"padding": strings.Repeat("x", spec)}
		metadata := obj["metadata"].(map[string]any)
		delete(metadata, "annotations")
		if annotation > 0 {
			metadata["annotations"] = map[string]any{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("y", annotation)}
		}
	})
}

// message is one of the stream, in short: "web updated trimmed", "web dead".
type message struct {
	line string
	*jetstream.RawStreamMsg
}

// await waits until the stream holds so many messages about objects, and returns them.
func (r *natsRig) await(n int) (messages []message) {
	r.t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		messages = messages[:0]
		stream, err := r.js.Stream(r.t.Context(), "K8S")
		for seq := uint64(1); err == nil && seq <= stream.CachedInfo().State.LastSeq; seq++ {
			m, err := stream.GetMsg(r.t.Context(), seq)
			testkit.OK(r.t, err)
			if name := header(m, "ce-name"); name != "" {
				line := name + " " + m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
				if header(m, "ce-deadletterreason") != "" {
					line = name + " dead"
				}
				if form := header(m, "ce-oversize"); form != "" {
					line += " " + form
				}
				messages = append(messages, message{line, m})
			}
		}
		if len(messages) >= n {
			return messages
		}
		if time.Since(began) > 30*time.Second {
			r.t.Fatalf("%d messages after 30s, want %d: %v", len(messages), n, lines(messages, ""))
		}
	}
}

func header(m *jetstream.RawStreamMsg, name string) string {
	if values := m.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// lines are the messages about one object, or about all, in the stream's order.
func lines(messages []message, name string) (list []string) {
	for _, m := range messages {
		if name == "" || strings.HasPrefix(m.line, name+" ") {
			list = append(list, m.line)
		}
	}
	return list
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// Events too large for the broker arrive in a smaller form.
func TestOversizeForms(t *testing.T) {
	r := newNATSRig(t)
	r.run(nil, nil)
	r.put("web", 100, 0)
	r.put("api", 100, 30_000)
	r.await(2)
	r.put("web", 100, 30_000)
	r.put("web", 30_000, 100)
	r.put("web", 200, 0)
	r.put("api", 300, 0)
	messages := r.await(6)
	wantLines(t, lines(messages, "web"), "web added", "web updated trimmed", "web updated reference", "web updated")
	wantLines(t, lines(messages, "api"), "api added trimmed", "api updated")
	for _, m := range messages {
		if strings.HasSuffix(m.line, "reference") && (!strings.Contains(string(m.Data), `"PartialObjectMetadata"`) || strings.Contains(string(m.Data), "last-applied")) {
			t.Errorf("a reference holds %.300s", m.Data)
		}
	}
}

// A payload too large for a message is kept in the object store.
func TestObjectStorePayload(t *testing.T) {
	r := newNATSRig(t)
	r.run([]publisher.Oversize{publisher.Claim}, func(c *nats.Options) { c.Objects.Bucket = "LARGE" })
	r.put("web", 30_000, 0)
	r.await(1)
	r.put("web", 200_000, 0)
	messages := r.await(2)
	wantLines(t, lines(messages, "web"), "web added claimed", "web updated claimed")
	for i, size := range []int{30_000, 200_000} {
		m := messages[i]
		ref, err := url.Parse(header(m.RawStreamMsg, "ce-dataref"))
		testkit.OK(t, err)
		bucket, err := r.js.ObjectStore(t.Context(), ref.Host)
		testkit.OK(t, err)
		data, err := bucket.GetBytes(t.Context(), strings.TrimPrefix(ref.Path, "/"))
		testkit.OK(t, err)
		if !strings.Contains(string(data), strings.Repeat("x", size)) || fmt.Sprint(len(data)) != header(m.RawStreamMsg, "ce-originalsize") || len(m.Data) > 0 {
			t.Errorf("%s: %d bytes are kept, %s were there", ref, len(data), header(m.RawStreamMsg, "ce-originalsize"))
		}
	}
}

// Later events of an object continue behind its dead letter.
func TestDeadLetterUnblocksObject(t *testing.T) {
	r := newNATSRig(t)
	r.run([]publisher.Oversize{}, nil)
	r.put("web", 100, 0)
	r.await(1)
	r.put("web", 30_000, 0)
	r.put("web", 200, 0)
	messages := r.await(3)
	wantLines(t, lines(messages, "web"), "web added", "web dead", "web updated")
	dead := messages[1].RawStreamMsg
	if !strings.Contains(header(dead, "ce-deadletterreason"), fmt.Sprint("max_payload%20is%20", natsMaxPayload)) || header(dead, "ce-deadletterattempts") == "" ||
		header(dead, "ce-resourceversion") == "" || dead.Subject != "k8s.test._deadletter.pods.updated" {
		t.Errorf("the dead letter on %s has %v", dead.Subject, dead.Header)
	}
}

// A dead letter without a stream waits for one.
// Nothing takes the dead letters: they wait, with what is behind them, and other objects don't.
func TestDeadLetterWithoutStream(t *testing.T) {
	r := newNATSRig(t)
	events := jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.test.core.>"}, Duplicates: 2 * time.Minute}
	_, err := r.js.CreateStream(t.Context(), events)
	testkit.OK(t, err)
	r.run([]publisher.Oversize{}, func(c *nats.Options) { c.Stream.Manage = nats.Off })
	r.put("web", 100, 0)
	r.await(1)
	r.put("web", 30_000, 0)
	r.put("web", 200, 0)
	for range 5 {
		r.put("api", 100, 0)
	}
	wantLines(t, lines(r.await(6), "web"), "web added")
	events.Subjects = []string{"k8s.test.>"}
	_, err = r.js.UpdateStream(t.Context(), events)
	testkit.OK(t, err)
	wantLines(t, lines(r.await(8), "web"), "web added", "web dead", "web updated")
}

// What neither the stream nor the dead letters accept is kept, and the object continues.
func TestUndeliveredFile(t *testing.T) {
	r, dir := newNATSRig(t), t.TempDir()
	folder := refused.New(refused.Config{Dir: filepath.Join(dir, "undelivered"), MaxBytes: 1 << 20})
	r.keep = func(e *event.Event, refusal, deadLetter error, attempts int) error {
		return folder.Keep(e, refused.Refusal{Sink: "nats", Reason: refusal.Error(), DeadLetter: deadLetter.Error(), Attempts: attempts})
	}
	r.put("web", 10, 0)
	_, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}})
	testkit.OK(t, err)
	r.run([]publisher.Oversize{}, func(c *nats.Options) { c.DeadLetterSubject, c.Stream.Manage = "nowhere.{resource}", nats.Off })
	r.await(1)
	r.put("web", natsMaxPayload, 0)
	r.put("web", 10, 0)
	if got := lines(r.await(2), "web"); !slices.Equal(got, []string{"web added", "web updated"}) {
		t.Errorf("the stream has %q", got)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "undelivered", "nats", "*.json"))
	testkit.OK(t, err)
	if len(kept) != 1 {
		t.Fatalf("kept %q", kept)
	}
	raw, err := os.ReadFile(kept[0])
	testkit.OK(t, err)
	if text := string(raw); len(raw) < natsMaxPayload || !strings.Contains(text, "too large") || !strings.Contains(text, "no stream") {
		t.Errorf("kept %.300s", raw)
	}
}

// count waits until the stream holds so many messages, and no more.
func (r *natsRig) count(n uint64) {
	r.t.Helper()
	var last uint64
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(50 * time.Millisecond) {
		if stream, err := r.js.Stream(r.t.Context(), "K8S"); err == nil {
			if last = stream.CachedInfo().State.LastSeq; last >= n {
				break
			}
		}
	}
	if last != n {
		r.t.Fatalf("%d messages, want %d", last, n)
	}
}

// gaps are the gap events of the stream: of what, why, and where.
func (r *natsRig) gaps() (gaps []string) {
	r.t.Helper()
	stream, err := r.js.Stream(r.t.Context(), "K8S")
	testkit.OK(r.t, err)
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(r.t.Context(), seq)
		testkit.OK(r.t, err)
		if of, _, found := strings.Cut(m.Header.Get(natsgo.MsgIdHdr), "/gap/"); found {
			_, reason, _ := strings.Cut(string(m.Data), `"reason":"`)
			reason, _, _ = strings.Cut(reason, `"`)
			gaps = append(gaps, fmt.Sprintf("%s %s at %d", of, reason, seq))
		}
	}
	return gaps
}

// A lost state is a gap for a sink with earlier events.
func TestLostStateGapOnNATS(t *testing.T) {
	for name, change := range map[string]func(*nats.Options){"binary": nil, "structured": func(c *nats.Options) { c.Encoding = sinks.Structured }} {
		t.Run(name, func(t *testing.T) {
			r := newNATSRig(t)
			r.put("web", 10, 0)
			r.put("api", 10, 0)
			end := r.run(nil, change)
			r.count(3)
			end()
			r.Delete("shop/web")
			r.put("db", 10, 0)

			end = r.run(nil, change) // with another state: the delete of web is not known, and api comes again, within the window of duplicates
			r.count(7)
			end()
			end = r.run(nil, change) // with yet another
			r.count(11)
			end()
			if got := r.gaps(); !slices.Equal(got, []string{"all/all/pods forgotten at 4", "all/all/pods forgotten at 8"}) {
				t.Errorf("gaps %q", got)
			}

			r.informer = "another" // which has never reported anything
			end = r.run(nil, change)
			r.count(14)
			end()
			if got := r.gaps(); len(got) != 2 {
				t.Errorf("gaps %q", got)
			}
		})
	}
}

// A server that is started later delays no other one, whether it holds events of an earlier life or
// not, and gets everything.
func TestServerIsStartedLater(t *testing.T) {
	for name, before := range map[string]int{"a new one": 0, "one that holds events": 3} {
		t.Run(name, func(t *testing.T) {
			r, late := newNATSRig(t), newNATSRig(t)
			late.Server = r.Server
			r.put("web", 10, 0)
			r.put("api", 10, 0)
			if before > 0 {
				end := late.run(nil, nil)
				late.count(uint64(before))
				end()
				r.Delete("shop/web")
			}
			late.stop()
			r.also = []*natsRig{late}
			objects := 2 - min(before, 1)
			began := time.Now()
			end := r.run(nil, nil)
			r.count(uint64(objects + 1))
			if took := time.Since(began); took > 25*time.Second {
				t.Errorf("the other server had everything after %v", took)
			}
			r.put("api", 20, 0)
			r.count(uint64(objects + 2))
			late.serve()
			late.count(uint64(before + min(before, 1) + objects + 2))
			end()
			var want []string
			if before > 0 {
				want = []string{"all/all/pods forgotten at 4"}
			}
			if got := late.gaps(); !slices.Equal(got, want) {
				t.Errorf("gaps %q", got)
			}
			if got := r.gaps(); got != nil {
				t.Errorf("gaps of the other server %q", got)
			}
		})
	}
}
