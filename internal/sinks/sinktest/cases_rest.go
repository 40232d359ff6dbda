package sinktest

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

var errPoison = errors.New(`the schema says "no"`)

func deadLetterArrives(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	e := NewEvent("web", 7, 500)
	if err := sink.DeadLetter(t.Context(), e, errPoison, 5); err != nil {
		t.Fatalf("dead letter: %v", err)
	}
	r := onlyDeadLetter(t, b, e)
	if !bytes.Equal(r.Data, e.Data) {
		t.Errorf("data: got %.200q, want %.200q", r.Data, e.Data)
	}
	if truncated := r.Attributes["truncated"]; truncated != "" {
		t.Errorf("truncated is %q although the data is there", truncated)
	}
}

func largeDeadLetterArrives(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	e := NewEvent("web", 7, h.TooLarge)
	if err := sink.DeadLetter(t.Context(), e, errPoison, 5); err != nil {
		t.Fatalf("dead letter: %v", err)
	}
	r := onlyDeadLetter(t, b, e)
	if len(r.Data) != 0 || r.Attributes["truncated"] != "true" ||
		r.Attributes["originalsize"] != strconv.Itoa(len(e.Data)) {
		t.Errorf("got %d bytes of data, truncated=%q, originalsize=%q; want none, true, %d",
			len(r.Data), r.Attributes["truncated"], r.Attributes["originalsize"], len(e.Data))
	}
}

// swollenDeadLetterArrives is about a letter that can't be made to fit by leaving out its data. A
// dead letter that is refused would hold up its object forever.
func swollenDeadLetterArrives(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	e := NewEvent("web", 7, 500)
	e.Manager = strings.Repeat("m", 3*h.TooLarge)
	if err := sink.DeadLetter(t.Context(), e, errPoison, 5); err != nil {
		t.Fatalf("dead letter: %v", err)
	}
	stored := b.Read(t, 1)
	if len(stored) != 1 || !strings.Contains(stored[0].Attributes["deadletterreason"],
		errPoison.Error()) || stored[0].Attributes["id"] != e.ID {
		t.Errorf("%d messages are stored, the first %.2000v", len(stored), stored)
	}
}

// onlyDeadLetter is the one message stored, which must be the event with a reason, and not where
// events are.
func onlyDeadLetter(t *testing.T, b *Broker, e *event.Event) Received {
	t.Helper()
	stored := b.Read(t, 1)
	if len(stored) != 1 {
		t.Fatalf("%d messages stored, want 1", len(stored))
	}
	r := stored[0]
	for name, want := range attributesOf(e) {
		if name != "datacontenttype" && r.Attributes[name] != want {
			t.Errorf("attribute %s is %q, want %q", name, r.Attributes[name], want)
		}
	}
	if reason := r.Attributes["deadletterreason"]; !strings.Contains(reason, errPoison.Error()) {
		t.Errorf("deadletterreason is %q, want %q in it", reason, errPoison)
	}
	if attempts := r.Attributes["deadletterattempts"]; attempts != "5" {
		t.Errorf("deadletterattempts is %q, want 5", attempts)
	}
	return r
}

func emptyBatch(t *testing.T, h Harness) {
	sink := open(t, h.Start(t))
	began := time.Now()
	sink.Publish(t.Context(), nil)
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func closeEndsGoroutines(t *testing.T, h Harness) {
	b := h.Start(t)
	// a first connection may start goroutines that belong to the broker or to a library permanently
	warm := b.NewSink(t)
	if err := warm.Open(t.Context()); err != nil {
		t.Fatalf("open: %v", err)
	}
	publish(t, warm, NewEvent("web", 1, 300))
	if err := warm.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	before := settled()

	sink := b.NewSink(t)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatalf("open: %v", err)
	}
	publish(t, sink, history(2, 4, "web", "api")...)
	if err := sink.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if err := sink.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	for began := time.Now(); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before the sink was opened:\n%s", runtime.NumGoroutine(),
				before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// settled is the number of goroutines once those that are about to end have ended.
func settled() int {
	count := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		count = min(count, runtime.NumGoroutine())
	}
	return count
}

// recalls checks what a process finds that starts after another has died: everything that was
// stored behind the saved position, and not much more. Among it are a dead letter, and an event
// whose destination nobody had used when the position was saved.
func recalls(t *testing.T, h Harness) {
	b := h.Start(t)
	first := open(t, b)
	recaller, ok := first.(sinks.ReadBacker)
	if !ok {
		t.Skip("the sink can't be read back")
	}
	if got := recall(t, first, nil); len(got) > 0 {
		t.Errorf("without a saved position it recalls %v", got)
	}
	before := history(1, 50, "web", "api")
	publish(t, first, before...)
	position := recaller.Position()
	if string(position) != string(recaller.Position()) {
		t.Error("the same place has other bytes")
	}
	behind := append(history(51, 60, "web", "api", "new"), gapEvent())
	publish(t, first, behind...)
	letter := NewEvent("poison", 1, 300)
	hasLetters := first.DeadLetter(t.Context(), letter, errPoison, 1) == nil
	later := recaller.Position()
	if string(position) == string(later) {
		t.Error("the position has not moved")
	}

	second := open(t, b)
	got := recall(t, second, position)
	for _, e := range behind {
		if !got[e.MessageID()] {
			t.Errorf("%s is not recalled", e.MessageID())
		}
	}
	for _, e := range before {
		if got[e.MessageID()] {
			t.Errorf("%s is recalled, and was stored before the position", e.MessageID())
		}
	}
	if hasLetters && !got[letter.MessageID()] {
		t.Error("the dead letter is not recalled")
	}
	if got := recall(t, open(t, b), later); len(got) > 0 {
		t.Errorf("behind the end it recalls %v", got)
	}
}

// recall has a sink recall, and touches the destinations of all events that the case sends.
func recall(t *testing.T, sink sinks.Sink, from []byte) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	if err := sink.(sinks.ReadBacker).ReadBack(t.Context(), from,
		func(id string) { got[id] = true }); err != nil {
		t.Fatalf("recall: %v", err)
	}
	for _, e := range []*event.Event{NewEvent("web", 1, 300), gapEvent()} {
		laneOf(t.Context(), t, sink, e)
	}
	return got
}
