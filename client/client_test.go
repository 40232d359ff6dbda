package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubebridge/bridge/client"
)

const patience = 30 * time.Second

var pods = schema.GroupResource{Resource: "pods"}

// TestSharedInformer has what client-go promises of an informer, from each kind of source.
func TestSharedInformer(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			for behaviour, test := range map[string]func(*testing.T, *broker, *client.Client){
				"adds, updates and deletes come in order":             changesComeInOrder,
				"it has synced when the list is complete":             hasSyncedWhenComplete,
				"a resync reports every object again":                 resyncReportsAgain,
				"what vanished in a gap has an unknown final state":   vanishedInAGap,
				"a repeat of an older event changes nothing":          repeatsChangeNothing,
				"an object that comes back under its name is another": comesBack,
				"it continues after an outage":                        continuesAfterAnOutage,
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
	if b.isState() { // it may not show a version that another has replaced
		h.wantLines(t, "update a 6 from 5")
		b.delete("a")
		h.wantLines(t, "delete a 6")
		return
	}
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

func resyncReportsAgain(t *testing.T, b *broker, c *client.Client) {
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
	if reported := h.take(); len(reported) > 0 {
		t.Errorf("in the gap it reported %q", reported)
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
		if reported := strings.Join(h.take(), ","); !strings.Contains(reported, "vanish b 7") {
			t.Errorf("reported %s", reported)
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

func continuesAfterAnOutage(t *testing.T, b *broker, c *client.Client) {
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
	if reported := h.take(); len(reported) > 0 {
		t.Errorf("reported %q", reported)
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
		t.Error("the watch continues")
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
