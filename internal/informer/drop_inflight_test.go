package informer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// settleUpTo settles what is held of pod "a" before a version, and continues holding the rest.
func (o *outbox) settleUpTo(t *testing.T, v int) {
	t.Helper()
	o.mu.Lock()
	var done []*publisher.Item
	o.held = slices.DeleteFunc(o.held, func(it *publisher.Item) bool {
		goes := version(t, it.Message.Event.ResourceVersion) < v
		if goes {
			done = append(done, it)
		}
		return goes
	})
	o.mu.Unlock()
	settle(done)
}

// ahead lets a listener have everything with its publisher.
func ahead(c *informer.StagesConfig) { c.Listeners[0].Window = 100_000 }

// What is with the publisher when its entry is dropped is lost if the process then dies: also the
// last that was dropped.
func TestDropInFlight(t *testing.T) {
	for name, more := range map[string]bool{"at once": false, "when more was dropped since": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, dead := memory(t), newOutbox()
				dead.setHold(true)
				r := newRig(t, db, []*outbox{dead}, spooling, dropping, ahead)
				const step = 100
				last := 100
				for range 30 { // with the publisher before it goes
					r.flood(last, last+step)
					last += step
					testkit.Eventually(t, "everything is with the publisher", func() bool { return dead.got(last - 1) })
				}
				r.resting(last)
				first, _, err := r.indexer.Log().Bounds()
				testkit.OK(t, err)
				inFlight := 100 + int(first) - 1 // the last that was dropped
				dead.settleUpTo(t, inFlight)
				testkit.OK(t, r.committer.Commit())
				if more {
					r.flood(last, last+3000)
					last += 3000
					r.resting(last)
				}

				after := newOutbox()
				r2 := newRig(t, db, []*outbox{after}, spooling, dropping)
				r2.flood(last, last+100)
				testkit.Eventually(t, "it has the last", func() bool { return after.got(last + 99) })
				r2.stop()
				if reported := losses(t, after.events()); !slices.ContainsFunc(reported, func(g gapData) bool { return g.holds(inFlight) }) {
					t.Errorf("%d was with the publisher; reported: %+v", inFlight, reported)
				}
			})
		})
	}
}

// losses are what a stream reported as dropped.
func losses(t *testing.T, events []event.Event) (reported []gapData) {
	t.Helper()
	for i := range events {
		var g gapData
		if events[i].Op == event.Gap {
			testkit.OK(t, json.Unmarshal(events[i].Data, &g))
		}
		if g.Reason == resource.ReasonDropped {
			reported = append(reported, g)
		}
	}
	return reported
}

// holds reports whether a version is among what was dropped.
func (g gapData) holds(version int) bool {
	var from, to int
	_, _ = fmt.Sscan(g.From, &from) // none is the start
	_, _ = fmt.Sscan(g.To, &to)
	return from <= version && version <= to
}

func TestGapsAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, dead := memory(t), newOutbox()
		dead.setHold(true)
		r := newRig(t, db, []*outbox{dead}, spooling, dropping)
		end := 100
		flood := func() {
			r.flood(end, end+3000)
			end += 3000
		}
		list := func(reason string, from int) {
			r.list(resource.Relist{Reason: reason, From: resource.Version(fmt.Sprint(from)), To: resource.Version(fmt.Sprint(end))}, resource.Version(fmt.Sprint(end+1)), fmt.Sprint("a@", end))
			end += 2
		}
		flood()
		list(resource.ReasonExpired, end-500)
		flood()
		list(resource.ReasonUnreadable, end-1)
		list(resource.ReasonExpired, end-1)
		second := end - 3
		flood()
		r.resting(end)
		// It dies before anything was acknowledged, and again while the gaps are reported.
		again := newOutbox()
		again.setHold(true)
		r = newRig(t, db, []*outbox{again}, spooling, dropping)
		testkit.Eventually(t, "a gap is reported", func() bool { return len(again.events()) == 1 })
		flood()
		r.resting(end)
		after := newOutbox()
		r = newRig(t, db, []*outbox{after}, spooling, dropping)
		testkit.Eventually(t, "it has the last", func() bool { return after.got(end - 1) })
		r.stop()

		var got []string
		for _, e := range after.events()[:3] {
			got = append(got, e.ID)
		}
		reported := losses(t, after.events())
		if len(reported) != 1 || !reported[0].holds(100) || !reported[0].holds(2600) || reported[0].Dropped < 9000 {
			t.Fatalf("reported: %+v", reported)
		}
		testkit.Want(t, got,
			fmt.Sprintf("all/pods/gap/%d/%d", second-2, second-1),
			fmt.Sprintf("all/pods/gap/%d/%d", second, second+1),
			after.events()[2].ID)
		if again.events()[0].ID != got[0] {
			t.Errorf("first reported as %s", again.events()[0].ID)
		}
	})
}

// Without the end of a list nobody knows how far it reached: so what the list stands for counts as
// lost with it.
func TestDropOfListEnd(t *testing.T) {
	for name, test := range map[string]struct {
		why  resource.Relist
		from string
	}{"after a gap": {expired, "3"}, "first": {initial, ""}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead := newOutbox()
				dead.setHold(true)
				r := newRig(t, memory(t), []*outbox{dead}, spooling, dropping)
				var items []string
				for n := range 200 { // more than are with the publisher
					items = append(items, fmt.Sprintf("p%d@%d", n, 21+n))
				}
				r.list(test.why, "300", items...)
				r.flood(301, 3301)
				r.resting(3301)
				dead.release()
				testkit.Eventually(t, "it has the last", func() bool { return dead.got(3300) })
				r.stop()
				if reported := losses(t, dead.events()); len(reported) != 1 || reported[0].From != test.from || !reported[0].holds(301) {
					t.Errorf("reported: %+v", reported)
				}
			})
		})
	}
}
