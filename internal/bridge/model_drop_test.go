package bridge_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestDropModel plays the model with logs on disk that are soon full and drop their
// oldest: what a sink was not sent lies in a gap that it got, and all else of the promises
// holds. (Every sink gets every version.)
func TestDropModel(t *testing.T) {
	drops := 0
	for round := range testkit.Rounds(*modelRounds, 2) {
		seed := *modelSeed + uint64(round)
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, seed)
				m.noLatest()
				m.noResync()
				m.unit.Memory, m.unit.Spool, m.unit.DropOldest = 1<<10, 4<<10, true
				m.playTo(*modelSteps, func() {
					m.stopLife()
					for _, b := range m.brokers {
						drops += m.judgeDrops(b)
					}
				})
			})
		})
		if !ok {
			t.Fatalf("to see it again: go test ./internal/bridge -run DropModel -bridge.model.rounds 1 -bridge.model.steps %d -bridge.model.seed %d", *modelSteps, seed)
		}
	}
	if testkit.Rounds(*modelRounds, 2) >= 10 && drops == 0 {
		t.Error("nothing was dropped: the test tests nothing")
	}
}

// lossy reads a stream that may have holes.
type lossy struct {
	*reader
	newest  map[resource.Key]int64
	dropped []*gap
	// droppedBack: a drop was reported behind a rewind. The deletes that a list infers from a
	// rewind are no writes of the server, and may be among what was dropped.
	droppedBack bool
}

// judgeDrops reads the stream of a broker, and gives the number of drops that it got.
func (m *model) judgeDrops(b *testkit.Broker) int {
	l := &lossy{newest: map[resource.Key]int64{}, reader: &reader{m: m, b: b, reported: map[*write]int{}, buried: map[string]bool{}, folded: map[resource.Key]string{}}}
	l.run = -1
	for _, rec := range b.Records() {
		for l.run < rec.Process {
			l.nextRun()
		}
		l.take(rec)
	}
	l.complete()
	for _, p := range l.problems {
		m.t.Error(p)
	}
	return len(l.dropped)
}

// nextRun begins with a first snapshot where nothing is on disk.
func (l *lossy) nextRun() {
	l.run++
	if s := &l.m.states[l.run]; s.watermark == 0 && len(s.known)+len(s.announced) == 0 {
		l.begin(&gap{})
	}
}

func (l *lossy) take(rec *testkit.Record) {
	switch strings.TrimPrefix(rec.Type, "dev.kubebridge.") {
	case "informer.gap":
		l.gap(rec)
	case "informer.synced":
		if l.relist != nil {
			l.relist.synced = number(resource.Version(rec.ResourceVersion))
			l.relist = nil
		}
	case "resource.added", "resource.updated":
		if key, w := l.look(rec); w != nil {
			l.report(rec, key, w)
			l.folded[key] = w.mark
		}
	case "resource.deleted":
		if key, w := l.look(rec); w != nil {
			delete(l.folded, key)
			again := l.buried[w.uid]
			l.buried[w.uid] = true
			if !rec.Inferred && !again {
				l.watched(rec, key, number(resource.Version(rec.ResourceVersion)))
			}
		}
	}
}

// report checks that the first report comes behind all earlier ones of the object, and what a list
// reported behind its gap.
func (l *lossy) report(rec *testkit.Record, key resource.Key, w *write) {
	if w.version != number(resource.Version(rec.ResourceVersion)) || w.uid != rec.UID {
		l.problem(rec, "the server made %s", w)
	}
	switch _, reported := l.reported[w]; {
	case reported: // again
	case w.version < l.newest[key] && !l.skipped(rec, w):
		l.problem(rec, "it comes behind %d", l.newest[key])
	case (rec.Inferred || rec.Initial) && l.relist == nil:
		l.problem(rec, "it is of a list, and no gap was reported")
	}
	l.note(w)
	l.newest[key] = max(l.newest[key], w.version)
	if l.relist != nil && (rec.Inferred || rec.Initial) {
		l.relist.item(rec)
	}
}

// skipped reports whether a list had passed over a write that the run before did not settle: after
// a crash a watch may report it nevertheless.
func (l *lossy) skipped(rec *testkit.Record, w *write) bool {
	return w.version > l.m.states[rec.Process].watermark && l.excused(w)
}

func (l *lossy) gap(rec *testkit.Record) {
	var data struct {
		Reason, From, To string
		Dropped          int
	}
	if err := json.Unmarshal(rec.Data, &data); err != nil {
		l.problem(rec, "%v", err)
	}
	g := &gap{reason: data.Reason, from: number(resource.Version(data.From)), to: number(resource.Version(data.To)), history: l.history}
	if g.reason == resource.ReasonRewound {
		l.history = l.m.historyAt(rec.Time)
		g.history = l.history - 1
		clear(l.newest)
	}
	if g.reason != resource.ReasonDropped {
		l.begin(g)
		return
	}
	if data.Dropped < 1 || g.from > g.to {
		l.problem(rec, "%s", rec.Data)
	}
	l.dropped = append(l.dropped, g)
	l.droppedBack = l.droppedBack || l.history > 0
}

// isDropped reports whether a version lies in a drop that was reported.
func (l *lossy) isDropped(version int64) bool {
	for _, g := range l.dropped {
		if g.from <= version && version <= g.to {
			return true
		}
	}
	return false
}

// complete sees that every write was reported, or lies in a gap; and that what the stream ends with
// is what the server has, but for what was dropped.
func (l *lossy) complete() {
	lost := map[resource.Key]int64{}
	for _, w := range l.m.cluster.all {
		_, reported := l.reported[w]
		if !reported && l.isDropped(w.version) {
			lost[w.key] = w.version
		}
		if !reported && !(w.deleted && l.buried[w.uid]) && !l.isDropped(w.version) && !l.excused(w) {
			l.problem(nil, "missing, and in no gap: %s", w)
		}
	}
	for key, w := range l.ends() {
		before := l.m.cluster.byMark[l.folded[key]] // nil for none
		right := (w == nil || w.deleted) && before == nil || w != nil && !w.deleted && before == w
		lastDropped := w != nil && l.isDropped(w.version)
		backDropped := l.droppedBack && !slices.Contains(l.m.cluster.now().writes, before)
		if !right && !lastDropped && !backDropped && (before == nil || !l.isDropped(before.version) && lost[key] < before.version) {
			l.problem(nil, "%s ends as %v, the server made %s", key, before, w)
		}
	}
}

// ends are the last writes of all names, nil where a rewind has undone all.
func (l *lossy) ends() map[resource.Key]*write {
	last := map[resource.Key]*write{}
	for key := range l.folded {
		last[key] = nil
	}
	for _, w := range l.m.cluster.now().writes {
		last[w.key] = w
	}
	return last
}
