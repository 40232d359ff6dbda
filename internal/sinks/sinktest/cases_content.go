package sinktest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

func storesWhatItIsGiven(t *testing.T, h Harness) {
	b := h.Start(t)
	events := []*event.Event{
		NewEvent("web", 1, 400), NewEvent("api", 1, 2048),
		NewEvent("job", 1, 6144),
	}
	events[1].Initial, events[1].Inferred, events[1].Cause = true, true, "deleted"
	publish(t, open(t, b), events...)
	wantExactly(t, b, events...)
}

func keepsValuesThatNeedEscaping(t *testing.T, h Harness) {
	b := h.Start(t)
	e := NewEvent("web", 1, 400)
	e.Manager = `kubectl "edit" 100% – Ωμέγα 🚀`
	e.Name = "system:node:a.b"
	e.Extensions = []event.Attribute{{Name: "note", Value: "a%20b\\c,d=e;f\tg"}}
	publish(t, open(t, b), e)
	wantExactly(t, b, e)
}

func storesAnEventWithoutData(t *testing.T, h Harness) {
	b := h.Start(t)
	e := NewEvent("web", 1, 400)
	e.Data = nil
	publish(t, open(t, b), e)
	wantExactly(t, b, e)
}

// brokenText panics when it is read, with debug.SetPanicOnFault.
func brokenText() string {
	header := struct{ data, size uintptr }{1 << 46, 5} // nothing is at that address
	return *(*string)(unsafe.Pointer(&header))
}

func refusesAnEventAtWhichItPanics(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	events := []*event.Event{NewEvent("web", 1, 400), NewEvent("web", 2, 400), NewEvent("web", 3, 400)}
	for _, e := range events {
		if _, err := sink.Lane(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	poison := *events[1]
	poison.Name = brokenText()
	m := []*sinks.Message{{Event: events[0]}, {Event: &poison}, {Event: events[2]}}
	if sink.Order() == sinks.ByLane {
		sink.Publish(t.Context(), m)
	} else {
		for i := range m { // an object at a time
			sink.Publish(t.Context(), m[i:i+1])
		}
	}
	if m[0].Err != nil || m[2].Err != nil {
		t.Errorf("the others: %v, %v", m[0].Err, m[2].Err)
	}
	_, isPanic := errors.AsType[*event.PanicError](m[1].Err)
	if sinks.Classify(m[1].Err) != sinks.Refused || !isPanic {
		t.Errorf("the answer is %v, class %v", m[1].Err, sinks.Classify(m[1].Err))
	}
	wantExactly(t, b, events[0], events[2])
}

func storesInformerEvents(t *testing.T, h Harness) {
	b := h.Start(t)
	publish(t, open(t, b), gapEvent())
	wantExactly(t, b, gapEvent())
}

// awkwardNames are objects whose names or namespaces become equal under a careless encoding.
var awkwardNames = []struct{ namespace, name string }{
	{"", "a"},
	{"-", "a"},
	{"a", "b"},
	{"", "a/b"},
	{"a.b", "c"},
	{"a", "b.c"},
	{"a_b", "c"},
	{"a", "b_c"},
	{"a", "b%2Ec"},
	{"a", "b_2Ec"},
	{"a", "*"},
	{"a", ">"},
	{"a", "%2A"},
	{"a", "system:node"},
	{"a", "system_node"},
	{"a", "Ω"},
	{"a", "%CE%A9"},
	{"a", "b c"},
	{"a", "b%20c"},
	{"", "-"},
	{"-", "-"},
}

func namesNeverMeet(t *testing.T, h Harness) {
	b := h.Start(t)
	var events []*event.Event
	for i, awkward := range awkwardNames {
		e := NewEvent(fmt.Sprint("object", i), 1, 300)
		e.Namespace, e.Name = awkward.namespace, awkward.name
		e.PartitionKey = "deployments.apps/" + e.Namespace + "/" + e.Name
		events = append(events, e)
	}
	publish(t, open(t, b), events...)
	met := map[string]string{}
	for _, r := range wantExactly(t, b, events...) {
		address, object := r.Destination+" "+r.Key, r.Attributes["namespace"]+"/"+
			r.Attributes["name"]
		if other, ok := met[address]; ok {
			t.Errorf("%q and %q both went to %q", object, other, address)
		}
		met[address] = object
	}
}

// wantExactly checks that the events are stored, once each and nothing else, and returns them as
// stored.
func wantExactly(t *testing.T, b *Broker, events ...*event.Event) []Received {
	t.Helper()
	stored := b.Read(t, len(events))
	if len(stored) != len(events) {
		t.Errorf("%d messages are stored, want %d", len(stored), len(events))
	}
	byID := map[string]Received{}
	for _, r := range stored {
		byID[r.Attributes["id"]] = r
	}
	for _, e := range events {
		if r, ok := byID[e.ID]; !ok {
			t.Errorf("%s is not stored", e.ID)
		} else {
			wantEqual(t, r, e)
		}
	}
	return stored
}

func wantEqual(t *testing.T, r Received, e *event.Event) {
	t.Helper()
	if want := attributesOf(e); !maps.Equal(r.Attributes, want) {
		t.Errorf("attributes of %s\n got %v\nwant %v", e.ID, r.Attributes, want)
	}
	if !bytes.Equal(r.Data, e.Data) {
		t.Errorf("data of %s: got %d bytes %.300q, want %d bytes %.300q", e.ID, len(r.Data), r.Data,
			len(e.Data), e.Data)
	}
	if r.Destination == "" || strings.ContainsAny(r.Destination, " {}") {
		t.Errorf("destination of %s is %q", e.ID, r.Destination)
	}
}
