package sinktest

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// recalls checks what a process finds that starts after another has died: everything that was
// stored behind the saved position, and not much more. Among it are a dead letter, and an event
// whose destination nobody had used when the position was saved.
func recalls(t *testing.T, h Harness) {
	b := h.Start(t)
	first := open(t, b)
	recaller, ok := first.(sinks.Recaller)
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
	if err := sink.(sinks.Recaller).Recall(t.Context(), from,
		func(id string) { got[id] = true }); err != nil {
		t.Fatalf("recall: %v", err)
	}
	for _, e := range []*event.Event{NewEvent("web", 1, 300), gapEvent()} {
		laneOf(t.Context(), t, sink, e)
	}
	return got
}
