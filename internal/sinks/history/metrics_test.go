package history_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	store "github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// timesApart gives events times of the API server that are some time apart.
func timesApart(events []event.Event, apart time.Duration) []event.Event {
	for i := range events {
		events[i].Time = events[0].Observed.Add(time.Duration(i) * apart)
		events[i].TimeSource = event.TimeManagedFields
	}
	return events
}

func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	events := timesApart(testkit.Events(t, 3, 5, 4), time.Minute)
	const horizon = "bridge_history_horizon_timestamp_seconds"
	publish := func(retention time.Duration, registry *prometheus.Registry) {
		s, err := history.New(history.Options{Config: history.Config{Dir: dir, Retention: retention}, Env: sinks.Env{Registry: registry}})
		testkit.OK(t, err)
		testkit.OK(t, s.Open(t.Context()))
		var batch []*sinks.Message
		for i := range events {
			batch = append(batch, &sinks.Message{Event: &events[i]})
		}
		s.Publish(t.Context(), batch)
		for _, m := range batch {
			testkit.OK(t, m.Err)
		}
		testkit.Eventually(t, "it has measured", func() bool {
			got := testkit.Metrics(t, registry)
			return got["bridge_history_bytes"] > 0 && (retention == 0 || got[horizon] > 0)
		})
		testkit.OK(t, s.Close())
	}
	versions := 0.0
	for i := range events {
		if !events[i].AboutInformer() {
			versions++
		}
	}
	first, again := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	publish(0, first)
	publish(time.Minute, again)
	for name, want := range map[string]float64{
		"bridge_history_stored_total version":     versions,
		"bridge_history_stored_total mark":        float64(len(events)) - versions,
		"bridge_history_stored_total repeat":      0,
		horizon:                                   0,
		"bridge_history_retention_failures_total": 0,
	} {
		if got, there := testkit.Metrics(t, first)[name]; got != want || !there {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := testkit.Metrics(t, first)["bridge_history_bytes"]; got <= 0 {
		t.Errorf("it takes %v bytes", got)
	}
	got := testkit.Metrics(t, again)[horizon]
	if got <= float64(events[0].Observed.Unix()) {
		t.Errorf("the horizon is %v after a retention of a minute", got)
	}
}

// The remedy of the runbook: a history that is damaged is moved away.
func TestRetentionFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	events := timesApart(testkit.Events(t, 3, 50, 100), 100*time.Millisecond)
	run := func() map[string]float64 {
		registry := prometheus.NewPedanticRegistry()
		s, err := history.New(history.Options{Config: history.Config{Dir: dir, Retention: time.Minute}, Env: sinks.Env{Registry: registry}})
		testkit.OK(t, err)
		testkit.OK(t, s.Open(t.Context()))
		var batch []*sinks.Message
		for i := range events {
			batch = append(batch, &sinks.Message{Event: &events[i]})
		}
		s.Publish(t.Context(), batch)
		for _, m := range batch {
			testkit.OK(t, m.Err)
		}
		testkit.Eventually(t, "retention has ended once", func() bool { // it is measured after it
			return testkit.Metrics(t, registry)["bridge_history_bytes"] > 0
		})
		testkit.OK(t, s.Close())
		return testkit.Metrics(t, registry)
	}
	const failures, stored = "bridge_history_retention_failures_total", "bridge_history_stored_total version"
	db, err := store.Open(store.Options{Dir: dir})
	testkit.OK(t, err)
	var batch []*event.Event
	for i := range events {
		batch = append(batch, &events[i])
	}
	_, err = db.Writer.Append(t.Context(), batch)
	testkit.OK(t, errors.Join(err, db.Close()))
	db, err = store.Open(store.Options{Dir: dir}) // what lay in the log is a table afterwards
	testkit.OK(t, errors.Join(err, db.Close()))
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	testkit.OK(t, err)
	for _, table := range tables {
		data, err := os.ReadFile(table)
		testkit.OK(t, err)
		for i := len(data) / 10; i < len(data)/5; i++ { // entries of the timeline
			data[i] ^= 0x55
		}
		testkit.OK(t, os.WriteFile(table, data, 0o600))
	}
	events = events[:1]
	if got := run(); got[failures] != 1 {
		t.Errorf("%v failures in a damaged history", got[failures])
	}
	testkit.OK(t, os.Rename(dir, dir+".damaged"))
	events = testkit.Events(t, 4, 5, 4)
	if got := run(); got[failures] != 0 || got[stored] == 0 {
		t.Errorf("%v failures, %v versions in a new one", got[failures], got[stored])
	}
}
