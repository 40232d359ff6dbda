package publisher_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

func TestPanic(t *testing.T) {
	t.Run("an event that could not be made is a dead letter, and the rest goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink, registry := newSink(t, sinks.ByObject), prometheus.NewRegistry()
			p, r := start(t, sink, publisher.Config{Registerer: registry}), newRecorder(t)
			items := r.items("a/1", "poison/1", "a/2", "b/1")
			items[1].Message.Event.Err = event.NewPanicError(errors.New("a bug"))
			p.add(items)
			p.drain()
			if !slices.Equal(sink.dead, []string{"poison/1"}) || sink.reasons[0].Error() != "panic: *errors.errorString" {
				t.Errorf("dead letters %v, %v", sink.dead, sink.reasons)
			}
			if sink.storedOf("a") != "a/1 a/2" || sink.storedOf("b") != "b/1" || sink.storedOf("poison") != "" {
				t.Errorf("stored %v", sink.stored)
			}
			if got := items[1].Outcome(); got != publisher.DeadLettered {
				t.Errorf("outcome %s", got)
			}
			if n := total(t, registry, "bridge_publisher_panics_total"); n != 1 {
				t.Errorf("counted %v", n)
			}
		})
	})
}

// total is the value of a counter without labels.
func total(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
