package client_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
)

// broker is a source that a test fills as the bridge does.
type broker struct {
	t       testing.TB
	kind    string // a bucket, a stream, a view or topics
	version int

	// Of a NATS server, for a bucket and a stream.
	opts   server.Options
	server *server.Server
	js     jetstream.JetStream

	kafka *kafkaBroker // for a view and topics
}

// kinds are the kinds of source.
var kinds = []string{"bucket", "stream", "view", "topics"}

func newBroker(t testing.TB, kind string) *broker {
	t.Helper()
	b := &broker{t: t, kind: kind, opts: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, NoSigs: true, NoLog: true,
	}}
	if kind == "view" || kind == "topics" {
		b.kafka = newKafka(t, kind == "view")
		return b
	}
	b.opts.StoreDir = t.TempDir()
	b.start()
	t.Cleanup(func() { b.stop() })
	// nats-server removes the directory of an account with no streams left only after it has
	// answered the delete: creating the next stream may fail then. So another one stays.
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER"})
	must(t, err)
	b.create()
	return b
}

// isState reports whether the source holds what exists, and no history.
func (b *broker) isState() bool { return b.kind == "bucket" || b.kind == "view" }

func (b *broker) start() {
	b.t.Helper()
	if b.kafka != nil {
		b.kafka.cut(false)
		return
	}
	opts := b.opts
	s, err := server.NewServer(&opts)
	must(b.t, err)
	s.Start()
	if !s.ReadyForConnections(patience) {
		b.t.Fatal("nats-server does not become ready")
	}
	b.server, b.opts.Port = s, opts.Port
	if b.js == nil {
		nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1),
			nats.ReconnectWait(20*time.Millisecond))
		must(b.t, err)
		b.t.Cleanup(nc.Close)
		b.js, err = jetstream.New(nc)
		must(b.t, err)
	}
}

func (b *broker) stop() {
	if b.kafka != nil {
		b.kafka.cut(true)
		return
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *broker) isReachable() bool {
	ctx, stop := context.WithTimeout(b.t.Context(), time.Second)
	defer stop()
	if b.kafka != nil {
		return b.kafka.connection.Ping(ctx) == nil
	}
	_, err := b.js.AccountInfo(ctx)
	return err == nil
}

func (b *broker) create() {
	b.t.Helper()
	if b.kafka != nil {
		b.kafka.create()
		return
	}
	var err error
	if b.kind == "bucket" {
		_, err = b.js.CreateKeyValue(b.t.Context(), jetstream.KeyValueConfig{Bucket: "K8S"})
	} else {
		_, err = b.js.CreateStream(b.t.Context(), jetstream.StreamConfig{
			Name: "K8S", Subjects: []string{"k8s.>"},
		})
	}
	must(b.t, err)
}

// drop removes the source.
func (b *broker) drop() {
	b.t.Helper()
	switch b.kind {
	case "bucket":
		must(b.t, b.js.DeleteKeyValue(b.t.Context(), "K8S"))
	case "stream":
		must(b.t, b.js.DeleteStream(b.t.Context(), "K8S"))
	default:
		must(b.t, b.kafka.cluster.DeleteTopic(podsTopic))
	}
}

// forget drops the messages that were stored until now, less the last one of each partition.
func (b *broker) forget() {
	b.t.Helper()
	if b.kafka == nil {
		stream, err := b.js.Stream(b.t.Context(), "K8S")
		must(b.t, err)
		must(b.t, stream.Purge(b.t.Context(),
			jetstream.WithPurgeSequence(stream.CachedInfo().State.LastSeq)))
		return
	}
	for p := range int32(partitions) {
		end := b.kafka.cluster.PartitionInfo(podsTopic, p).HighWatermark
		must(b.t, b.kafka.cluster.DeleteRecords(podsTopic, p, end-1))
	}
}

func (b *broker) source() client.Source {
	switch b.kind {
	case "bucket":
		return client.Bucket(b.js, "K8S")
	case "view", "topics":
		return b.kafka.source()
	}
	return client.Stream(b.js, "K8S")
}

// send stores an event.
func (b *broker) send(key, op string, attributes map[string]string, data string) {
	b.t.Helper()
	m := &nats.Msg{Subject: "$KV.K8S." + key, Header: nats.Header{}, Data: []byte(data)}
	if b.kind == "stream" {
		m.Subject = "k8s.test." + key + "." + op
	}
	all := map[string]string{
		"specversion": "1.0", "source": "/clusters/test", "informer": "all", "apiversion": "v1",
		"resource": "pods", "sequence": fmt.Sprintf("%08d.%020d", 0, b.version),
		"resourceversion": fmt.Sprint(b.version),
	}
	maps.Copy(all, attributes)
	if b.kafka != nil {
		b.kafka.send(all, data)
		return
	}
	for name, value := range all {
		m.Header["ce-"+name] = []string{strings.ReplaceAll(value, " ", "%20")}
	}
	if b.kind == "bucket" && strings.HasSuffix(all["type"], ".resource.deleted") {
		m.Header["KV-Operation"], m.Data = []string{"DEL"}, nil
	}
	_, err := b.js.PublishMsg(b.t.Context(), m)
	must(b.t, err)
}

// put makes or changes a pod, with a label that says in which version it is.
func (b *broker) put(name string) {
	b.t.Helper()
	b.version++
	b.putAgain(name)
}

func (b *broker) putAgain(name string) {
	b.t.Helper()
	b.send("core.pods.shop."+name, "updated", map[string]string{
		"type": client.TypeUpdated, "id": fmt.Sprintf("uid-%s/%d", name, b.version),
		"namespace": "shop", "name": name, "uid": "uid-" + name,
	}, podJSON(name, b.version))
}

// podType is how podJSON begins; items of a list do not have it.
const podType = `"apiVersion":"v1","kind":"Pod",`

func podJSON(name string, version int) string {
	return fmt.Sprintf(`{`+podType+`"metadata":{"name":%q,"namespace":"shop",`+
		`"uid":"uid-%s","resourceVersion":"%d"},"spec":{"nodeName":"node-%d"}}`, name, name, version,
		version)
}

func (b *broker) delete(name string) {
	b.t.Helper()
	b.version++
	b.send("core.pods.shop."+name, "deleted", map[string]string{
		"type": client.TypeDeleted, "id": "uid-" + name + "/deleted", "namespace": "shop",
		"name": name, "uid": "uid-" + name,
	}, podJSON(name, b.version))
}

func (b *broker) about(what, data string) {
	b.t.Helper()
	b.version++
	b.send("_informers.all.pods."+what, what, map[string]string{
		"type": "dev.kubebridge.informer." + what, "id": fmt.Sprintf("all/pods/%s/%d", what, b.version),
	}, data)
}

// synced ends a list of so many objects.
func (b *broker) synced(items int) {
	b.t.Helper()
	b.about("synced", fmt.Sprintf(`{"items":%d}`, items))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(t testing.TB, b *broker) *client.Client {
	t.Helper()
	c := client.New(b.source())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return c
}

// handler notes what an informer reports: "add a 1", "update a 1 2", "delete a 2", "vanish a 2".
type handler struct {
	mu    sync.Mutex
	lines []string
}

func (h *handler) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

func describe(obj any) string {
	meta, _ := obj.(interface {
		GetName() string
		GetResourceVersion() string
	})
	return meta.GetName() + " " + meta.GetResourceVersion()
}

func (h *handler) OnAdd(obj any, initial bool) {
	if initial {
		h.note("list %s", describe(obj))
		return
	}
	h.note("add %s", describe(obj))
}

func (h *handler) OnUpdate(before, now any) {
	_, version, _ := strings.Cut(describe(before), " ")
	h.note("update %s from %s", describe(now), version)
}

func (h *handler) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		h.note("vanish %s", describe(unknown.Obj))
		return
	}
	h.note("delete %s", describe(obj))
}

func (h *handler) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

// wantLines waits until the handler was called with these, in any order where a list comes first.
func (h *handler) wantLines(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	slices.Sort(want)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(5 * time.Millisecond) {
		got = append(got, h.take()...)
		if slices.Sort(got); len(got) >= len(want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q\nwant %q", got, want)
	}
}

// start starts an informer.
func start(
	t testing.TB, c *client.Client, options client.Options, of runtime.Object, resync time.Duration,
) (cache.SharedIndexInformer, *handler) {
	t.Helper()
	var lw *client.ListerWatcher
	await(t, "the resource", func() (has bool) {
		var err error
		lw, err = c.ListerWatcher(t.Context(), pods, options)
		return err == nil
	})
	informer := cache.NewSharedIndexInformer(lw, of, resync,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	h := &handler{}
	_, err := informer.AddEventHandler(h)
	must(t, err)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); informer.Run(stop) }()
	t.Cleanup(func() { close(stop); <-done })
	return informer, h
}

func await(t testing.TB, what string, isTrue func() bool) {
	t.Helper()
	for began := time.Now(); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}
