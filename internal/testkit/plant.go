package testkit

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

// Planted is a fault in a stream.
type Planted struct {
	What string
	Kind string // as package verify names it
}

// planter plants one kind of fault. at are the places of an object's events in the list; it gives
// the list.
type planter struct {
	Planted
	// recreated: the object must be one that was deleted and created again.
	recreated bool
	plant     func(events []event.Event, at []int) []event.Event
}

var planters = []planter{
	{Planted{"an update is removed", "break"}, false, func(events []event.Event, at []int) []event.Event {
		return slices.Delete(events, at[2], at[2]+1)
	}},
	{Planted{"the added event is removed", "break"}, false, func(events []event.Event, at []int) []event.Event {
		return slices.Delete(events, at[0], at[0]+1)
	}},
	{Planted{"two updates are swapped", "disorder"}, false, func(events []event.Event, at []int) []event.Event {
		events[at[2]], events[at[3]] = events[at[3]], events[at[2]]
		return events
	}},
	{Planted{"an update comes last", "disorder"}, false, func(events []event.Event, at []int) []event.Event {
		late := events[at[1]]
		return append(slices.Delete(events, at[1], at[1]+1), late)
	}},
	{Planted{"a body is that of the version before", "contradiction"}, false, func(events []event.Event, at []int) []event.Event {
		events[at[3]].Data = events[at[2]].Data
		return events
	}},
	{Planted{"a body is that of another object", "contradiction"}, false, func(events []event.Event, at []int) []event.Event {
		other := slices.IndexFunc(events, func(e event.Event) bool { return !e.AboutInformer() && e.UID != events[at[2]].UID })
		events[at[2]].Data = events[other].Data
		return events
	}},
	{Planted{"an event comes again with another body", "changed"}, false, func(events []event.Event, at []int) []event.Event {
		again := events[at[3]]
		again.Data = bytes.Replace(again.Data, []byte(`"replicas":`), []byte(`"replicas":1`), 1)
		return slices.Insert(events, at[3]+1, again)
	}},
	{Planted{"a delete is removed", "no-delete"}, true, func(events []event.Event, at []int) []event.Event {
		i := slices.IndexFunc(at, func(i int) bool { return events[i].Op == event.Deleted })
		return slices.Delete(events, at[i], at[i]+1)
	}},
	{Planted{"everything before a delete is removed", "no-add"}, true, func(events []event.Event, at []int) []event.Event {
		i := slices.IndexFunc(at, func(i int) bool { return events[i].Op == event.Deleted })
		for _, gone := range slices.Backward(at[:i]) {
			events = slices.Delete(events, gone, gone+1)
		}
		return events
	}},
	{Planted{"an id is used again", "contradiction"}, false, func(events []event.Event, at []int) []event.Event {
		events[at[3]].ID = events[at[2]].ID
		return events
	}},
}

// PlantFaults plants 100 faults in a stream of Events, each in another object. It gives the new
// stream and the faults by partition key.
func PlantFaults(t testing.TB, events []event.Event, seed uint64) ([]event.Event, map[string]Planted) {
	t.Helper()
	const faults = 100
	random := rand.New(rand.NewPCG(seed, 1))
	places := func() map[string][]int {
		of := map[string][]int{}
		for i := range events {
			if !events[i].AboutInformer() {
				of[events[i].PartitionKey] = append(of[events[i].PartitionKey], i)
			}
		}
		return of
	}
	all := places()
	var free, recreated []string
	for key, at := range all {
		if slices.ContainsFunc(at, func(i int) bool { return events[i].Op == event.Deleted }) {
			recreated = append(recreated, key)
		} else {
			free = append(free, key)
		}
	}
	slices.Sort(free)
	slices.Sort(recreated)
	random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	events = slices.Clone(events)
	planted := map[string]Planted{}
	for i := range faults {
		p := &planters[i%len(planters)]
		from := &free
		if p.recreated {
			from = &recreated
		}
		if len(*from) == 0 {
			t.Fatal("the stream has too few objects")
		}
		key := (*from)[0]
		*from = (*from)[1:]
		events = p.plant(events, places()[key])
		planted[key] = p.Planted
	}
	return events, planted
}
