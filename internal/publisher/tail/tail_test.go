package tail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/sinks"
)

func item(op event.Op, group, resource, namespace, name string) *publisher.Item {
	return &publisher.Item{Message: sinks.Message{Event: &event.Event{
		ID: "u/" + name, Op: op, Routing: event.Routing{Group: group}, ObjectAttributes: event.ObjectAttributes{Resource: resource, Kind: "Thing", Namespace: namespace, Name: name}, Informer: "all", OriginAttributes: event.OriginAttributes{Manager: "kubectl"},
		Subject: "apis/" + namespace + "/" + resource + "/" + name, Observed: time.Now().Add(-time.Second), Data: []byte(`{"ab":"` + strings.Repeat("é", 10_000) + `"}`),
	}}}
}

func watch(t *testing.T, h *tail.Hub, o tail.Options) *tail.Watcher {
	t.Helper()
	w, err := h.Watch(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func next(t *testing.T, w *tail.Watcher) tail.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFilter(t *testing.T) {
	items := []*publisher.Item{
		item(event.Added, "", "pods", "shop", "web-0"), item(event.Updated, "", "pods", "shop", "web-1"),
		item(event.Deleted, "apps", "deployments", "shop", "web"), item(event.Added, "", "nodes", "", "n1"),
	}
	for _, test := range []struct{ filter, want string }{
		{``, "web-0 web-1 web n1"},
		{`meta.resource == "pods"`, "web-0 web-1"},
		{`meta.resource == "deployments" && meta.group == "apps"`, "web"},
		{`meta.namespace == "shop" && op != "updated"`, "web-0 web"},
		{`meta.name.startsWith("web-") && op == "updated"`, "web-1"},
		{`subject.contains("shop/pods")`, "web-0 web-1"},
		{`!(meta.namespace in ["shop"])`, "n1"},
		{`sink == "lake"`, "web-0 web-1 web n1"},
		{`sink == "audit"`, "web-0"},
		{`informer == "all" && meta.kind == "Thing" && meta.manager.matches("^kube")`, "web-0 web-1 web n1"},
		{`bytes > 1000 && attempts == 0 && !meta.initial && !meta.inferred && id == "u/web"`, "web"},
		{`outcome == "acknowledged" && type + meta.resourceVersion + meta.uid + meta.apiVersion == ""`, "web-0 web-1 web n1"},
		{`int(meta.name) > 1`, "web-0 web-1 web n1"}, // it fails, so everything is shown
	} {
		h := tail.New(nil)
		w := watch(t, h, tail.Options{Filter: test.filter})
		h.Settled("lake", items)
		if test.filter == `sink == "audit"` {
			h.Settled("audit", items[:1])
		}
		var got []string
		for _, e := range next(t, w).Events {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q shows %v, want %s", test.filter, got, test.want)
		}
	}
	for filter, want := range map[string]string{
		`resorce == "pods"`: "undeclared reference to 'resorce'",
		`op = "deleted"`:    `"=" is not CEL: write "=="`,
		`meta.name`:         "want a condition",
		`op == 1`:           "no matching overload",
	} {
		if _, err := tail.New(nil).Watch(tail.Options{Filter: filter}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", filter, err, want)
		}
	}
}

// What a buffer can't hold is reported, and delays nobody.
func TestBufferOverflow(t *testing.T) {
	h := tail.New(nil)
	w := watch(t, h, tail.Options{})
	other := watch(t, h, tail.Options{Filter: `meta.name == "web-4999"`})
	for n := range 5000 { // nobody reads meanwhile
		h.Settled("lake", []*publisher.Item{item(event.Added, "", "pods", "shop", fmt.Sprint("web-", n))})
	}
	b := next(t, w)
	if len(b.Events) == 0 || len(b.Events)+b.Dropped != 5000 || b.Events[0].Name != "web-0" {
		t.Errorf("%d shown and %d dropped of 5000", len(b.Events), b.Dropped)
	}
	if b := next(t, other); len(b.Events) != 1 || b.Dropped != 0 {
		t.Errorf("the other is delayed: %d shown, %d dropped", len(b.Events), b.Dropped)
	}
	h.Settled("lake", []*publisher.Item{item(event.Added, "", "pods", "shop", "later")})
	if b := next(t, w); len(b.Events) != 1 || b.Dropped != 0 {
		t.Errorf("it does not continue: %+v", b)
	}
}

// Payloads are bounded, and sent only where asked for.
func TestPayloads(t *testing.T) {
	h := tail.New(nil)
	with, without := watch(t, h, tail.Options{Payload: true}), watch(t, h, tail.Options{})
	for range 1000 {
		h.Settled("lake", []*publisher.Item{item(event.Added, "", "pods", "shop", "web")})
	}
	b := next(t, with)
	e := b.Events[0]
	if len(e.Payload) != tail.MaxPayload-1 || !e.Truncated || e.Bytes != 20_009 || !strings.HasSuffix(e.Payload, "é") {
		t.Errorf("%d bytes of %d, truncated %t", len(e.Payload), e.Bytes, e.Truncated)
	}
	if bytes := len(b.Events) * tail.MaxPayload; bytes > 4<<20 || b.Dropped == 0 {
		t.Errorf("%d bytes wait, %d dropped", bytes, b.Dropped)
	}
	if e := next(t, without).Events[0]; e.Payload != "" || e.Bytes != 20_009 || e.Seconds < 1 || e.Outcome != publisher.Acknowledged {
		t.Errorf("got %+v", e)
	}
}

// What a reader gets of an event is a copy.
func TestEventCopy(t *testing.T) {
	h := tail.New(nil)
	w := watch(t, h, tail.Options{})
	it := item(event.Added, "", "pods", "shop", "web")
	h.Settled("lake", []*publisher.Item{it})
	*it.Message.Event = event.Event{ObjectAttributes: event.ObjectAttributes{Name: "another"}} // as its owner does with a settled one
	if e := next(t, w).Events[0]; e.Name != "web" {
		t.Errorf("got %+v", e)
	}
}

func TestNobodyLooksForNothing(t *testing.T) {
	h := tail.New(nil)
	items := []*publisher.Item{item(event.Added, "", "pods", "shop", "web")}
	w := watch(t, h, tail.Options{})
	w.Close()
	if n := testing.AllocsPerRun(100, func() { h.Settled("lake", items) }); n != 0 {
		t.Errorf("%v allocations while nobody looks", n)
	}
}

// Only so many readers may look at once.
func TestReaderLimit(t *testing.T) {
	h := tail.New(nil)
	var all []*tail.Watcher
	for range tail.MaxWatchers {
		all = append(all, watch(t, h, tail.Options{}))
	}
	if _, err := h.Watch(tail.Options{}); !errors.Is(err, tail.ErrTooMany) {
		t.Errorf("got %v", err)
	}
	slices.Reverse(all)
	all[0].Close()
	watch(t, h, tail.Options{})
}
