package informer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// dropping lets a log of 64 KiB on disk drop its oldest.
func dropping(c *informer.StagesConfig) {
	c.ChangeLog.SpoolBytes, c.ChangeLog.DropOldest = 64<<10, true
}

// gapData is what a gap event says.
type gapData struct {
	Reason, From, To string
	Dropped          int
}

// story is what a sink got about pod "a", which was updated version by version: each version was
// sent, or lies in a gap that was reported before anything later.
type story struct {
	t         *testing.T
	next      int // the version that comes next
	gaps      int
	dropped   int
	delivered int
}

func (s *story) read(events []event.Event) {
	s.t.Helper()
	for i := range events {
		e := &events[i]
		if e.Op == event.Gap {
			s.gap(e)
			continue
		}
		if got := version(s.t, e.ResourceVersion); got != s.next {
			s.t.Fatalf("%s comes where %d should: order, or a loss that was not reported", e.ID, s.next)
		}
		s.next++
		s.delivered++
	}
}

func (s *story) gap(e *event.Event) {
	s.t.Helper()
	var g gapData
	testkit.OK(s.t, json.Unmarshal(e.Data, &g))
	from, to := version(s.t, g.From), version(s.t, g.To)
	if g.Reason != "dropped" || from != s.next || to < from || g.Dropped != to-from+1 {
		s.t.Fatalf("gap %+v where %d should come", g, s.next)
	}
	s.gaps++
	s.dropped += g.Dropped
	s.next = to + 1
}

func version(t *testing.T, text string) int {
	t.Helper()
	v, err := strconv.Atoi(text)
	testkit.OK(t, err)
	return v
}

// events are those that came so far, of everything since the outbox was made.
func (o *outbox) events() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.raw)
}

// got reports whether a version came.
func (o *outbox) got(v int) bool {
	return slices.ContainsFunc(o.events(), func(e event.Event) bool { return e.ResourceVersion == strconv.Itoa(v) && e.Op != event.Gap })
}

// flood updates pod "a" from one version to, and without, another. It would block forever if
// reading stopped.
func (r *rig) flood(from, to int) {
	for v := from; v < to; v++ {
		r.update("a", fmt.Sprint(v))
	}
	r.bookmark(resource.Version(fmt.Sprint(to)))
}

// resting waits until everything that was read is settled or on disk.
func (r *rig) resting(watermark int) {
	r.t.Helper()
	testkit.Eventually(r.t, "everything is on disk", func() bool {
		testkit.OK(r.t, r.committer.Commit())
		return r.informer.Log().Status().Watermark == resource.Version(fmt.Sprint(watermark))
	})
}

// A full disk budget that drops the oldest reports to each sink what it lost.
func TestDropOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 6100
		registry := prometheus.NewRegistry()
		live, dead := newOutbox(), newOutbox()
		dead.setHold(true)
		r := newRig(t, memory(t), []*outbox{live, dead}, spooling, dropping, func(c *informer.StagesConfig) { c.Registerer = registry })
		r.flood(100, last)
		r.resting(last)
		const room = 64<<10 + 512<<10 // the bound, and what one round may add
		if s := r.informer.Status(); s.Log.DiskBytes > room {
			t.Errorf("%d bytes on disk", s.Log.DiskBytes)
		}
		dead.release()
		testkit.Eventually(t, "both have the last", func() bool { return dead.got(last-1) && live.got(last-1) })
		r.stop()

		forLive, forDead := story{t: t, next: 100}, story{t: t, next: 100}
		forLive.read(live.events())
		forDead.read(dead.events())
		if forDead.next != last || forDead.gaps != 1 || forDead.dropped == 0 || forDead.delivered < 100 {
			t.Errorf("the sink that stood still got %+v", forDead)
		}
		if forLive.next != last {
			t.Errorf("the other sink got %+v", forLive)
		}
		const dropped = "bridge_informer_dropped_total spool-full "
		got := testkit.Metric(t, registry, dropped+"sink-0") +
			testkit.Metric(t, registry, dropped+"sink-1")
		if int(got) != forLive.dropped+forDead.dropped {
			t.Errorf("counted %v, reported %d and %d", got, forLive.dropped, forDead.dropped)
		}
	})
}

// A gap of dropped changes is reported after a restart.
func TestDropGapAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, before := memory(t), newOutbox()
		before.setHold(true)
		r := newRig(t, db, []*outbox{before}, spooling, dropping)
		r.flood(100, 4100)
		r.resting(4100)
		// The process dies: what it had with the publisher was not acknowledged, and is gone from
		// disk.
		again := newOutbox()
		again.setHold(true)
		newRig(t, db, []*outbox{again}, spooling, dropping)
		testkit.Eventually(t, "the gap is reported", func() bool { return len(again.events()) == 1 })

		// It dies again, before the gap was acknowledged.
		after := newOutbox()
		r3 := newRig(t, db, []*outbox{after}, spooling, dropping)
		r3.flood(4100, 4200)
		testkit.Eventually(t, "it has the last", func() bool { return after.got(4199) })
		r3.stop()

		first, s := again.events()[0], story{t: t, next: 100}
		events := after.events()
		if events[0].ID != first.ID || events[0].Op != event.Gap {
			t.Errorf("reported as %s, then as %s", first.ID, events[0].ID)
		}
		s.read(events)
		if s.next != 4200 || s.gaps != 1 {
			t.Errorf("the sink got %+v", s)
		}
	})
}

// A gap that is being reported is followed by the next.
func TestDropDuringGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, dead := memory(t), newOutbox()
		dead.setHold(true)
		r := newRig(t, db, []*outbox{dead}, spooling, dropping)
		r.flood(100, 3100)
		r.resting(3100)
		r2dead := newOutbox()
		r2dead.setHold(true)
		r2 := newRig(t, db, []*outbox{r2dead}, spooling, dropping)
		testkit.Eventually(t, "the first gap is reported", func() bool { return len(r2dead.events()) == 1 })
		r2.flood(3100, 6100)
		r2.resting(6100)
		r2dead.release()
		testkit.Eventually(t, "it has the last", func() bool { return r2dead.got(6099) })
		r2.stop()

		s := story{t: t, next: 100}
		s.read(r2dead.events())
		if s.next != 6100 || s.gaps != 2 {
			t.Errorf("the sink got %+v", s)
		}
	})
}
