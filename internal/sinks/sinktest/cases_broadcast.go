package sinktest

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// broadcasts sends an event about an informer to each part of its destination: whoever reads one of
// them gets it, in front of the events of objects that come after it, and a restarted process finds
// each copy by its id. Those of another type have another key.
func broadcasts(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	broadcaster, ok := sink.(sinks.Broadcaster)
	if !ok {
		t.Skip("the sink's destinations have no parts")
	}
	gap, synced := NewEvent("web", 1, 300), NewEvent("web", 2, 300)
	gap.Op, gap.ID, gap.CompactionKey = event.Gap, "gap/1", "informers/workloads/gap"
	synced.ID, synced.CompactionKey = "synced/2", "informers/workloads/synced"
	parts, err := broadcaster.Parts(t.Context(), gap)
	if err != nil || parts < 2 {
		t.Fatalf("%d parts, %v; want some", parts, err)
	}
	publish(t, sink, NewEvent("before", 1, 300))
	var position []byte
	recaller, recalls := sink.(sinks.Recaller)
	if recalls {
		position = recaller.Position()
	}
	var copies []*event.Event
	for part := range parts {
		for _, e := range []*event.Event{gap, synced} {
			copies = append(copies, new(e.Copy(part)))
		}
	}
	publish(t, sink, copies...)
	objects := history(3, 4, "web", "api", "db", "cache")
	publish(t, sink, objects...)

	seen := map[int][]string{}
	keys := map[string]string{}
	for _, r := range b.Read(t, len(copies)+len(objects)+1) {
		if id := r.Attributes["id"]; r.Attributes["name"] != "before" {
			seen[r.Partition] = append(seen[r.Partition], id)
			keys[id] = r.Key
		}
	}
	for part := range parts {
		first, second := gap.Copy(part).ID, synced.Copy(part).ID
		if got := seen[part]; len(got) < 2 || got[0] != first || got[1] != second {
			t.Errorf("part %d begins with %v, want %s and %s", part, got, first, second)
		}
		if keys[first] != gap.CompactionKey || keys[second] != synced.CompactionKey {
			t.Errorf("keys %q and %q, want those of their types", keys[first], keys[second])
		}
	}
	if !recalls {
		return
	}
	got := recall(t, open(t, b), position)
	for _, e := range copies {
		if !got[e.MessageID()] {
			t.Errorf("%s is not recalled", e.MessageID())
		}
	}
}
