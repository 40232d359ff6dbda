package sinktest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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

// tooLarge is an event that the broker does not take, however well it can be compressed.
func tooLarge(h Harness, name string, version int) *event.Event {
	e := NewEvent(name, version, h.TooLarge)
	body := e.Data[len(e.Data)-h.TooLarge/2 : len(e.Data)-3] // of the padding
	state := uint32(version) + 1
	for i := range body {
		state = state*1664525 + 1013904223
		body[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[state>>26]
	}
	return e
}

func reportsWhatIsTooLarge(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	sizer, ok := sink.(sinks.Sizer)
	if !ok {
		t.Skip("the sink does not know its broker's limit")
	}
	publish(t, sink, NewEvent("web", 1, 300)) // it may learn the limit with the first event
	if err := sizer.Fits(NewEvent("web", 2, h.TooLarge/4)); err != nil {
		t.Errorf("a quarter of what is too large: %v", err)
	}
	large := tooLarge(h, "web", 2)
	large.Data = append(large.Data, large.Data...)
	// JSON no more, and larger than any compression helps
	large.Data = append(large.Data, large.Data...)
	for what, err := range map[string]error{"Fits": sizer.Fits(large), "Publish": call(t.Context(),
		sink, large)[0].Err} {
		if !errors.Is(err, sinks.ErrTooLarge) || sinks.Classify(err) != sinks.Refused {
			t.Errorf("%s says %v of %d bytes, want ErrTooLarge, refused", what, err,
				len(large.Data))
		}
	}
	wantExactly(t, b, NewEvent("web", 1, 300))
}

// followsTheLimit is about a limit of the broker that is changed while the sink is open: nothing
// that fits in a smaller form is refused, and what fits again comes as a whole.
func followsTheLimit(t *testing.T, h Harness) {
	b := h.Start(t)
	if b.Limit == nil {
		t.Skip("the destination has no limit that can be changed")
	}
	sink := open(t, b)
	events := []*event.Event{NewEvent("web", 1, 9000), NewEvent("web", 2, 9000), NewEvent("web", 3, 9000)}
	for _, e := range events {
		copy(e.Data[len(e.Data)-6000:], tooLarge(Harness{TooLarge: 12_000}, "x", 1).Data[6000:11_000])
	}
	publish(t, sink, events[0])
	b.Limit(t, 4000)
	smaller := storeAsPublisher(t, sink, events[1])
	if smaller == events[1] {
		t.Error("the event was stored as a whole above the limit")
	}
	b.Limit(t, 0)
	for began := time.Now(); sink.(sinks.Sizer).Fits(events[2]) != nil; {
		sink.(sinks.Inspector).Inspect(t.Context())
		if time.Since(began) > time.Minute {
			t.Fatal("a minute after the limit was raised the event does not fit")
		}
	}
	if storeAsPublisher(t, sink, events[2]) != events[2] {
		t.Error("the limit was raised, and the event was stored in a smaller form")
	}
	wantExactly(t, b, events[0], smaller, events[2])
}

// storeAsPublisher stores an event as the publisher does, in the first form that fits, and returns
// that.
func storeAsPublisher(t *testing.T, sink sinks.Sink, e *event.Event) *event.Event {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		form := e
		for _, smaller := range []func(*event.Event) *event.Event{event.Reference, event.BareReference} {
			if sink.(sinks.Sizer).Fits(form) != nil {
				form = smaller(e)
			}
		}
		err := call(t.Context(), sink, form)[0].Err
		switch {
		case err == nil:
			return form
		case sinks.Classify(err) == sinks.Refused, time.Since(began) > time.Minute:
			t.Fatalf("%s: %v", e.ID, err)
		}
	}
}

func storesTheSmallerForm(t *testing.T, h Harness) {
	b := h.Start(t)
	large := NewEvent("web", 1, max(h.TooLarge, 10_000))
	events := []*event.Event{
		event.Reference(large), event.BareReference(NewEvent("api", 1, 5000)),
		event.Claimed(NewEvent("job", 1, 5000), "nats-object://LARGE/workloads/uid/1"),
	}
	publish(t, open(t, b), events...)
	for _, r := range wantExactly(t, b, events...) {
		if r.Attributes["oversize"] == "" || len(r.Attributes["originalsha256"]) != 64 {
			t.Errorf("%s has oversize=%q originalsha256=%q", r.Attributes["id"],
				r.Attributes["oversize"], r.Attributes["originalsha256"])
		}
		if r.Attributes["id"] == large.ID &&
			r.Attributes["originalsize"] != strconv.Itoa(len(large.Data)) {
			t.Errorf("originalsize is %q, want %d", r.Attributes["originalsize"], len(large.Data))
		}
	}
}

func goesOnBehindADeadLetter(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	publish(t, sink, NewEvent("web", 1, 300))
	if err := sink.DeadLetter(t.Context(), NewEvent("web", 2, 300), errPoison, 1); err != nil {
		t.Fatalf("dead letter: %v", err)
	}
	publish(t, sink, history(3, 5, "web")...)
	var versions []string
	for _, r := range b.Read(t, 5) {
		// it may lie elsewhere, and is then read at any place
		if r.Attributes["deadletterreason"] == "" {
			versions = append(versions, r.Attributes["resourceversion"])
		}
	}
	if want := []string{"1", "3", "4", "5"}; !slices.Equal(versions, want) {
		t.Errorf("versions %v are stored, want %v", versions, want)
	}
}

// keepsAnObjectThatReturns checks that the new object of a name has the lane of the old one: else
// its first events could overtake the last of that.
func keepsAnObjectThatReturns(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	var events []*event.Event
	for life := range 5 {
		for version := 1; version <= 3; version++ {
			e := NewEvent("web", life*3+version, 300)
			e.UID = "uid-" + strconv.Itoa(life)
			switch version {
			case 1:
				e.Op, e.Type = event.Added, "dev.kubebridge.resource.added"
			case 3:
				e.Op, e.Type = event.Deleted, "dev.kubebridge.resource.deleted"
			}
			events = append(events, e)
		}
	}
	lane := laneOf(t.Context(), t, sink, events[0])
	for _, e := range events {
		if got := laneOf(t.Context(), t, sink, e); got != lane {
			t.Errorf("%s has lane %q, the object before it %q", e.ID, got, lane)
		}
	}
	publish(t, sink, events...)
	wantHistory(t, b, events)
}
