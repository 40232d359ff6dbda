package history_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	store "github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A clock of the machine that jumps is reported, and has nothing removed that is young by the times
// of the API server; events are stored meanwhile.
func TestClock(t *testing.T) {
	for _, test := range []struct {
		name     string
		jump     time.Duration
		log      string
		removed  bool
		observed bool // by the clock of this machine: the last change
	}{
		{"ahead by ten years", 10 * 365 * 24 * time.Hour, "is ahead of the newest change", false, false},
		{"ahead by ten years, with a delete of then", 10 * 365 * 24 * time.Hour, "is ahead of the newest change", false, true},
		{"back by ten years", -10 * 365 * 24 * time.Hour, "is behind the newest change", false, false},
		{"not at all", 0, "", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var log bytes.Buffer
			events := testkit.Events(t, 3, 20, 20)
			now := time.Now()
			for i := range events { // the last 400 hours
				events[i].Time = now.Add(-time.Duration(len(events)-i-1) * time.Hour)
				events[i].TimeSource = event.TimeManagedFields
			}
			if last := &events[len(events)-1]; test.observed {
				last.Time, last.TimeSource = now.Add(test.jump), event.TimeObserved
			}
			retention := 500 * time.Hour
			if test.removed {
				retention = 100 * time.Hour
			}
			for range 2 {
				registry := prometheus.NewPedanticRegistry()
				s, err := history.New(history.Options{
					Config: history.Config{Dir: dir, Retention: retention},
					Env:    sinks.Env{Registry: registry, Log: slog.New(slog.NewTextHandler(&log, nil))},
					Now:    func() time.Time { return time.Now().Add(test.jump) },
				})
				testkit.OK(t, err)
				testkit.OK(t, s.Open(t.Context()))
				batch := make([]*sinks.Message, len(events))
				for i := range events {
					batch[i] = &sinks.Message{Event: &events[i]}
				}
				s.Publish(t.Context(), batch)
				for _, m := range batch {
					testkit.OK(t, m.Err)
				}
				testkit.Eventually(t, "retention has ended once", func() bool {
					return testkit.Metrics(t, registry)["bridge_history_bytes"] > 0
				})
				testkit.OK(t, s.Close())
			}
			db, err := store.Read(store.Options{Dir: dir})
			testkit.OK(t, err)
			defer db.Close()
			horizon, err := db.Questions.Coverage.Horizon()
			testkit.OK(t, err)
			if horizon.IsZero() == test.removed {
				t.Errorf("the horizon is %v", horizon)
			}
			if text := log.String(); !strings.Contains(text, test.log) || test.log == "" && strings.Contains(text, "clock") {
				t.Error(text)
			}
		})
	}
}
