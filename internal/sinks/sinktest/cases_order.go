package sinktest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// history is versions from to to of each of the named objects, in the order the API server would
// deliver them.
func history(from, to int, names ...string) []*event.Event {
	var events []*event.Event
	for version := from; version <= to; version++ {
		for _, name := range names {
			events = append(events, NewEvent(name, version, 300))
		}
	}
	return events
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

func keepsOrder(t *testing.T, h Harness) {
	b := h.Start(t)
	events := history(1, 20, names("web", 12)...)
	publish(t, open(t, b), events...)
	wantHistory(t, b, events)
}

// keepsOrderOfConcurrentCallers is also the case that shows data races. Callers share no lane.
func keepsOrderOfConcurrentCallers(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	events := history(1, 15, names("web", 24)...)
	perLane := map[string][]*event.Event{}
	for _, e := range events {
		lane := laneOf(t.Context(), t, sink, e)
		perLane[lane] = append(perLane[lane], e)
	}
	var calls sync.WaitGroup
	for _, mine := range perLane {
		calls.Go(func() { publishLane(t, sink, mine) })
	}
	calls.Wait()
	wantHistory(t, b, events)
}

// givesALaneFromMemory asks with a context that has ended: the answer is the lane, or that it
// stopped, and changes nothing for who asks next.
func givesALaneFromMemory(t *testing.T, h Harness) {
	sink := open(t, h.Start(t))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	e := NewEvent("web", 1, 400)
	if _, err := sink.Lane(ended, e); err != nil && sinks.Classify(err) != sinks.Stopped {
		t.Errorf("before a look-up: %v (%s), want a lane, or that it stopped", err, sinks.Classify(err))
	}
	known, err := sink.Lane(t.Context(), e)
	if err != nil {
		t.Fatalf("behind an attempt that did not wait: %v", err)
	}
	if lane, err := sink.Lane(ended, NewEvent("web", 2, 400)); err != nil || lane != known {
		t.Errorf("behind a look-up: lane %q, %v; want %q", lane, err, known)
	}
}

// publishLane sends the events of one lane, one per call, from a goroutine of its own.
func publishLane(t *testing.T, sink sinks.Sink, events []*event.Event) {
	for _, e := range events {
		deadline := time.Now().Add(time.Minute)
		for {
			err := call(t.Context(), sink, e)[0].Err
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s not stored after a minute: %v", e.ID, err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func storesAResentMessageOnce(t *testing.T, h Harness) {
	b := h.Start(t)
	sink := open(t, b)
	events := history(1, 2, "web", "api")
	publish(t, sink, events...)
	publish(t, sink, events...)
	wantExactly(t, b, events...)
}

func storesOnceAcrossRestart(t *testing.T, h Harness) {
	b := h.Start(t)
	events := history(1, 2, "web", "api")
	publish(t, open(t, b), events...)
	publish(t, open(t, b), events...)
	wantExactly(t, b, events...)
}

func laneIsConstant(t *testing.T, h Harness) {
	sink := open(t, h.Start(t))
	for _, name := range names("web", 30) {
		lane := laneOf(t.Context(), t, sink, NewEvent(name, 1, 300))
		if lane == "" {
			t.Fatalf("%s has no lane", name)
		}
		later := NewEvent(name, 2, 900)
		later.Op, later.Type, later.Manager = event.Deleted, "dev.kubebridge.resource.deleted",
			"other"
		if got := laneOf(t.Context(), t, sink, later); got != lane {
			t.Errorf("%s: lane %q, later %q", name, lane, got)
		}
	}
}

// wantHistory checks that every version of every object is stored and that none comes after a later
// one of its object. Duplicates are allowed: another case is about them.
func wantHistory(t *testing.T, b *Broker, events []*event.Event) {
	t.Helper()
	seen, newest := map[string]bool{}, map[string]int{}
	for _, r := range readUntilAll(t, b, events) {
		name := r.Attributes["name"]
		version, err := strconv.Atoi(r.Attributes["resourceversion"])
		if err != nil {
			t.Fatalf("%s: resourceversion: %v", r.Attributes["id"], err)
		}
		if version < newest[name] {
			t.Errorf("version %d of %s is stored after version %d", version, name, newest[name])
		}
		newest[name] = max(newest[name], version)
		seen[r.Attributes["id"]] = true
	}
	missing := 0
	for _, e := range events {
		if !seen[e.ID] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d events were acknowledged and are not stored", missing, len(events))
	}
}

// readUntilAll reads until every event is there: with duplicates, the first len(events) messages
// need not be all.
func readUntilAll(t *testing.T, b *Broker, events []*event.Event) []Received {
	t.Helper()
	want := map[string]bool{}
	for _, e := range events {
		want[e.ID] = true
	}
	for n := len(events); ; n++ {
		stored := b.Read(t, n)
		missing := maps.Clone(want)
		for _, r := range stored {
			delete(missing, r.Attributes["id"])
		}
		if n = max(n, len(stored)); len(missing) == 0 || t.Failed() {
			return stored
		}
	}
}

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
	recaller, recalls := sink.(sinks.ReadBacker)
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
