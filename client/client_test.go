package client_test

import (
	"context"
	"errors"
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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
)

const patience = 30 * time.Second

var pods = schema.GroupResource{Resource: "pods"}

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

func podJSON(name string, version int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop",`+
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

// handler notes what an informer tells: "add a 1", "update a 1 2", "delete a 2", "vanish a 2".
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

// wantLines waits until the handler was told these, in any order where a list comes first.
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

// TestSharedInformer has what client-go promises of an informer, from each kind of source.
func TestSharedInformer(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			for behaviour, test := range map[string]func(*testing.T, *broker, *client.Client){
				"adds, updates and deletes come in order":             changesComeInOrder,
				"it has synced when the list is complete":             hasSyncedWhenComplete,
				"a resync tells every object again":                   resyncTellsAgain,
				"what vanished in a gap has an unknown final state":   vanishedInAGap,
				"a repeat of an older event changes nothing":          repeatsChangeNothing,
				"an object that comes back under its name is another": comesBack,
				"it goes on after an outage":                          goesOnAfterAnOutage,
				"a source that was recreated is listed again":         recreated,
				"objects of types and without have the same content":  typedAndUntyped,
				"other namespaces are left out":                       namespaces,
			} {
				t.Run(behaviour, func(t *testing.T) {
					b := newBroker(t, kind)
					test(t, b, run(t, b))
				})
			}
		})
	}
}

func changesComeInOrder(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.put("b")
	b.synced(2)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1", "list b 2")
	b.put("c")
	h.wantLines(t, "add c 4")
	b.put("a")
	h.wantLines(t, "update a 5 from 1")
	b.put("a")
	b.delete("a")
	h.wantLines(t, "update a 6 from 5", "delete a 6")
}

func hasSyncedWhenComplete(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	informer, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	time.Sleep(100 * time.Millisecond)
	if informer.HasSynced() || len(h.take()) > 0 {
		t.Error("it has synced in the middle of a list")
	}
	b.put("b")
	b.synced(2)
	h.wantLines(t, "list a 1", "list b 2")
	await(t, "HasSynced", informer.HasSynced)
}

func resyncTellsAgain(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.synced(1)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 2*time.Second)
	h.wantLines(t, "list a 1")
	h.wantLines(t, "update a 1 from 1")
}

func vanishedInAGap(t *testing.T, b *broker, c *client.Client) {
	for _, name := range []string{"a", "b", "c"} {
		b.put(name)
	}
	b.synced(3)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1", "list b 2", "list c 3")
	b.about("gap", `{"reason":"expired"}`)
	b.delete("a")
	b.put("b")
	b.put("d")
	if told := h.take(); len(told) > 0 {
		t.Errorf("in the gap it told %q", told)
	}
	b.synced(3)
	h.wantLines(t, "vanish a 1", "update b 7 from 2", "update c 3 from 3", "add d 8")
	b.put("c")
	h.wantLines(t, "update c 10 from 3")
	t.Run("where the bridge has forgotten everything", func(t *testing.T) {
		b.about("gap", `{"reason":"forgotten"}`)
		if b.isState() { // the bridge deletes what does not exist
			b.delete("b")
		}
		b.put("c")
		b.put("d")
		b.synced(2)
		await(t, "the list", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lines) >= 3
		})
		if told := strings.Join(h.take(), ","); !strings.Contains(told, "vanish b 7") {
			t.Errorf("told %s", told)
		}
	})
}

func repeatsChangeNothing(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.put("a")
	b.synced(1)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 2")
	now := b.version
	b.version = 1
	b.putAgain("a") // after a crash
	b.version = 2
	b.putAgain("a")
	b.version = now
	b.put("b")
	h.wantLines(t, "add b 4")
}

func comesBack(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.synced(1)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1")
	b.version++
	b.send("core.pods.shop.a", "added", map[string]string{
		"type": client.TypeAdded, "id": "other/3", "namespace": "shop", "name": "a", "uid": "other",
	}, strings.ReplaceAll(podJSON("a", b.version), "uid-a", "other"))
	h.wantLines(t, "delete a 1", "add a 3")
}

func goesOnAfterAnOutage(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.synced(1)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1")
	b.stop()
	b.start()
	await(t, "the server", b.isReachable)
	b.put("a")
	b.put("b")
	h.wantLines(t, "update a 3 from 1", "add b 4")
}

func recreated(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.put("b")
	b.synced(2)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1", "list b 2")
	b.drop()
	b.create()
	b.put("b")
	b.synced(1)
	h.wantLines(t, "vanish a 1", "update b 4 from 2")
}

func typedAndUntyped(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.synced(1)
	typed, h := start(t, c, client.Options{Scheme: scheme.Scheme}, &corev1.Pod{}, 0)
	h.wantLines(t, "list a 1")
	untyped, h2 := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h2.wantLines(t, "list a 1")
	found, ok, err := typed.GetIndexer().GetByKey("shop/a")
	pod, isPod := found.(*corev1.Pod)
	if !ok || err != nil || !isPod || pod.Spec.NodeName != "node-1" ||
		pod.Kind != "" {
		t.Errorf("got %+v, %v", found, err)
	}
	found, _, _ = untyped.GetIndexer().GetByKey("shop/a")
	node, _, _ := unstructured.NestedString(found.(*unstructured.Unstructured).Object, "spec", "nodeName")
	if node != "node-1" {
		t.Errorf("got %+v", found)
	}
}

func namespaces(t *testing.T, b *broker, c *client.Client) {
	b.put("a")
	b.synced(1)
	informer, h := start(t, c, client.Options{Namespace: "other"}, &unstructured.Unstructured{}, 0)
	await(t, "HasSynced", informer.HasSynced)
	_, all := start(t, c, client.Options{Namespace: "shop"}, &unstructured.Unstructured{}, 0)
	all.wantLines(t, "list a 1")
	b.put("b")
	all.wantLines(t, "add b 3")
	if told := h.take(); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}

func TestUnknownResource(t *testing.T) {
	b := newBroker(t, "bucket")
	b.put("a")
	b.synced(1)
	_, err := run(t, b).ListerWatcher(t.Context(),
		schema.GroupResource{Group: "apps", Resource: "deployments"}, client.Options{})
	var unknown *client.UnknownResourceError
	if !errors.As(err, &unknown) || !slices.Contains(unknown.Has, pods) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"bucket K8S", "deployments.apps", "it has pods"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
}

// A stream that has dropped a part of the list has no state.
func TestStreamWithoutItsList(t *testing.T) {
	b := newBroker(t, "stream")
	b.put("a")
	b.put("b")
	b.synced(2)
	stream, err := b.js.Stream(t.Context(), "K8S")
	must(t, err)
	must(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(2)))
	lw, err := run(t, b).ListerWatcher(t.Context(), pods, client.Options{})
	must(t, err)
	_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "has dropped 1") {
		t.Errorf("got %v", err)
	}
}

func TestSelectorIsRefused(t *testing.T) {
	b := newBroker(t, "bucket")
	b.synced(0)
	lw, err := run(t, b).ListerWatcher(t.Context(), pods, client.Options{})
	must(t, err)
	options := metav1.ListOptions{LabelSelector: "app=web"}
	if _, err = lw.ListWithContext(t.Context(), options); err == nil || !strings.Contains(err.Error(), "no selectors") {
		t.Errorf("got %v", err)
	}
}

func TestRunEnds(t *testing.T) {
	b := newBroker(t, "bucket")
	b.put("a")
	b.synced(1)
	c := client.New(b.source())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	lw, err := c.ListerWatcher(t.Context(), pods, client.Options{})
	must(t, err)
	_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
	must(t, err)
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	must(t, err)
	stop()
	must(t, <-ended)
	if e := <-w.ResultChan(); e.Type != watch.Error {
		t.Errorf("the watch gave %+v", e)
	}
	if _, more := <-w.ResultChan(); more {
		t.Error("the watch goes on")
	}
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil ||
		!strings.Contains(err.Error(), "Run has ended") {
		t.Errorf("list: %v", err)
	}
	if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch without a list: %v", err)
	}
}

// A watch that lags behind by more than is kept lists again, and ends in the same state.
func TestWatchThatLags(t *testing.T) {
	b := newBroker(t, "stream") // which gives every version, also to a reader that is slow
	b.put("a")
	b.synced(1)
	c := run(t, b)
	lw, err := c.ListerWatcher(t.Context(), pods, client.Options{})
	must(t, err)
	_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
	must(t, err)
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer w.Stop()
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1")
	const floods = 6000
	for range floods {
		b.put("a")
	}
	last := fmt.Sprint(b.version)
	await(t, "the last version", func() bool {
		lines := h.take()
		return len(lines) > 0 && strings.HasPrefix(lines[len(lines)-1], "update a "+last)
	})
	changes := 0
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			break
		}
		changes++
	}
	if changes >= floods {
		t.Errorf("%d changes were kept for a watch that read none", changes)
	}
}
