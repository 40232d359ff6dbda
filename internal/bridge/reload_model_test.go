package bridge_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/sinks"
)

// TestReloadModel is the model test, in which the bridge
// is also asked, at any moment and whatever its brokers do, to begin its informer again, and to
// replace its sinks. A reader must not see that it was.
func TestReloadModel(t *testing.T) {
	rounds(t, "ReloadModel", func(t *testing.T, seed uint64) {
		m := newModel(t, seed)
		m.poison(seed)
		m.reloads = true
		m.play(*modelSteps)
	})
}

// reload begins the informer again, replaces some sinks, or both.
func (m *model) reload() {
	c := bridge.Change{Informers: []string{m.unit.Informer}, Units: []informer.Config{m.unit}}
	if m.one(2) {
		c.Changed = c.Informers
	}
	if m.one(2) { // the log is written again
		m.unit.Redaction += "x"
		c.Units[0], c.Changed = m.unit, c.Informers
	}
	for i, b := range m.brokers {
		sc := bridge.SinkConfig{Name: b.Name}
		// With latest, what had no answer from a sink that is replaced collapses with what came
		// since, as after a crash: a reader that knows of no crash would take the Added that comes
		// of it for a second one.
		if m.one(4) && !m.unit.Sinks[i].Latest {
			var sink sinks.Sink = m.life.sessions[i]
			if m.recall {
				sink = recaller{m.life.sessions[i]}
			}
			sc.Sink, sc.Publisher = sink, m.retry
		}
		c.Sinks = append(c.Sinks, sc)
	}
	done, err := m.life.bridge.Reconfigure(m.t.Context(), &c)
	m.note("reload: %v, %v", done, err)
	if err != nil {
		m.t.Errorf("reload: %v", err)
	}
	if done.UnitsRestarted == 0 {
		return
	}
	m.restarts = append(m.restarts, moment{time.Now()})
	run := len(m.states) - 1
	if m.announced[run] == nil {
		m.announced[run] = map[string]int64{}
	}
	// what had no room by then is not reported, and owed if it dies in a gap
	maps.Copy(m.announced[run], m.read(m.life.db).announced)
}

// restarted reports whether a unit began again between two moments.
func (m *model) restarted(after, before time.Time) bool {
	return slices.ContainsFunc(m.restarts, func(r moment) bool { return !r.at.Before(after) && !r.at.After(before) })
}
