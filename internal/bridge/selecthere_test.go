package bridge_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestSelectHereModel relabels objects at any time, with a label
// selector that the bridge evaluates, which in half of the rounds is another at some starts, as is
// who evaluates it: while brokers are unavailable, while no bridge runs, before and after crashes,
// which lose what was not synced, and across versions that the cluster forgets. Whoever drops
// events with an id that he has seen must hold what is selected, and each cause that was reported
// must be what happened.
func TestSelectHereModel(t *testing.T) {
	rounds(t, "SelectHereModel", func(t *testing.T, seed uint64) {
		newChosen(t, seed).play(*modelSteps)
	})
}

// chosen is a model with a selection of objects by their labels.
type chosen struct {
	*scoped          // whose judge knows how to read a stream
	moves   bool     // the selector is another at some starts
	used    []string // selectors, the last is the present one
}

func newChosen(t *testing.T, seed uint64) *chosen {
	s := &chosen{scoped: &scoped{model: newModel(t, seed)}}
	s.cluster.teams = []string{"a", "b", "c"}
	s.unit.SelectHere = true
	s.expires = s.one(2)
	s.moves = s.one(2)
	s.choose()
	return s
}

// choose takes another selector.
func (s *chosen) choose() {
	s.unit.LabelSelector = pick(s.model, "team=a", "team in (a,b)", "team!=b", "!team")
	s.used = append(s.used, s.unit.LabelSelector)
	s.note("selector %s, evaluated here: %t", s.unit.LabelSelector, s.unit.SelectHere)
}

// matches reports whether a write is selected by a selector.
func (s *chosen) matches(selector string, w *write) bool {
	parsed, err := labels.Parse(selector)
	if err != nil {
		s.t.Fatal(err)
	}
	return parsed.Matches(labels.Set{"team": w.team})
}

func (s *chosen) restart() {
	if s.moves && s.one(2) {
		// Where the API server selects, a crash before a gap may have one leaving reported under
		// the id of another.
		s.unit.SelectHere = s.expires || !s.one(3)
		s.choose()
	}
	s.start()
}

func (s *chosen) play(steps int) {
	defer s.report()
	for range 5 {
		s.note("%s", s.cluster.change())
	}
	s.start()
	s.heal() // so that there is a position to resume from
	for range steps {
		s.step()
		if s.one(3) {
			synctest.Wait()
		} else {
			time.Sleep(time.Duration(s.rng.IntN(400)) * time.Millisecond)
		}
	}
	s.heal()
	s.stopLife()
	for _, b := range s.brokers {
		s.judge(b)
	}
	s.nothingMore()
}

// step does one thing at random.
func (s *chosen) step() {
	switch n := s.rng.IntN(100); {
	case n < 60:
		for range 1 + s.rng.IntN(6) {
			s.note("%s", s.cluster.change())
		}
	case n < 64:
		s.cluster.Streams.Bookmark()
	case n < 68 && s.expires:
		s.note("%s", s.cluster.expire())
		s.cluster.Streams.Cut()
	case n < 70 && s.expires:
		s.breakStreams()
	case n < 72:
		s.note("cut")
		s.cluster.Streams.Cut()
	case n < 76:
		s.refuse()
	case n < 86:
		s.upset()
	case n < 89:
		time.Sleep(time.Duration(s.rng.IntN(20)) * time.Second)
	case s.life == nil:
		s.restart()
	case n < 95:
		s.stopLife()
	default:
		s.crash()
	}
}

// heal waits until the bridge has caught up.
func (s *chosen) heal() { s.model.heal() }

// judge reads a stream from its beginning.
func (s *chosen) judge(b *testkit.Broker) {
	now := s.unit.LabelSelector
	holds := s.read(b, s.judgeRecord)
	for key, w := range s.cluster.alive {
		h := holds[s.unit.Type.String()+"/"+string(key)]
		switch selected := s.matches(now, w); {
		case selected && (h == nil || !h.alive || h.mark != w.mark):
			s.t.Errorf("%s: a reader does not hold the last state of %s: %s, but %+v", b.Name, key, w, h)
		case !selected && h != nil && h.alive:
			s.t.Errorf("%s: a reader still holds %s, which is not selected by %s: %+v", b.Name, key, now, h)
		}
	}
	s.judgeGone(b, holds)
}

// judgeRecord compares a record with what a reader holds, and with what happened.
func (s *chosen) judgeRecord(b *testkit.Broker, rec *testkit.Record, h *held, version int64) {
	// What was sent and not settled when it died comes again; with another selector under another
	// id.
	again := s.moves && h.uid == rec.UID && version == h.version
	if h.alive && rec.Op != event.Deleted && version <= h.version && !again {
		s.t.Errorf("%s: after version %d: %s", b.Name, h.version, describe(rec))
	}
	if err := s.wrongCause(rec, h, version); err != "" {
		s.t.Errorf("%s: %s: cause %q: %s", b.Name, err, rec.Cause, describe(rec))
	}
	if s.expires || s.moves || !h.alive || h.uid != rec.UID {
		return
	}
	for _, w := range s.cluster.all {
		if w.uid == rec.UID && w.version > h.version && w.version < version && !w.deleted {
			s.t.Errorf("%s: %s was lost before %s", b.Name, w, describe(rec))
		}
	}
}

// wrongCause says what is wrong with the cause that a record has.
func (s *chosen) wrongCause(rec *testkit.Record, h *held, version int64) string {
	var at, before, end *write // the write with the record's version, the one before it, and the object's end
	for _, w := range s.cluster.all {
		switch {
		case w.uid != rec.UID:
		case w.deleted:
			end = w
		case w.version < version:
			before = w
		case w.version == version:
			at = w
		}
	}
	selected := func(w *write) bool {
		return !slices.ContainsFunc(s.used, func(selector string) bool { return !s.matches(selector, w) })
	}
	switch rec.Cause {
	case "":
		if rec.Op == event.Deleted && !s.moves {
			return "none is reported"
		}
	case event.CauseUnknown:
		if rec.Op == event.Deleted && !s.moves {
			return "the bridge selects, so it is known"
		}
	case event.CauseCreated:
		if rec.Op != event.Added || at == nil || before != nil {
			return "it was not made then"
		}
	case event.CauseEntered:
		if rec.Op != event.Added || at == nil || before == nil || selected(before) {
			return "it did not come in then"
		}
	case event.CauseDeleted:
		if rec.Op != event.Deleted || end == nil {
			return "it lives on"
		}
	case event.CauseLeft:
		switch {
		case rec.Op != event.Deleted || at == nil || selected(at):
			return "it did not leave then"
		case h.alive && h.uid == rec.UID && !s.expires && !s.moves && h.mark != markOf(s.t, rec.Data):
			return "it does not come with the last state that was reported"
		}
	default:
		return "there is no such cause"
	}
	return ""
}
