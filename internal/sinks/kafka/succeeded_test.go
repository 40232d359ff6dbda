package kafka_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

var errNotHolder = errors.New("another one holds the office")

// TestSucceededProcess has a process continue that was stopped while its
// successor continued with its producer: the broker takes each sequence number once, and the old
// one asks before it continues as another producer.
func TestSucceededProcess(t *testing.T) {
	c := newCluster(t)
	var succeeded atomic.Bool
	old := openSink(t, c, func(k *kafka.Options) {
		k.Confirm = func(context.Context) error {
			if succeeded.Load() {
				return errNotHolder
			}
			return nil
		}
	})
	publish(t, old, podEvents("web", 1, 3)...)
	successor := resumed(t, c, old.Position())
	succeeded.Store(true)
	publish(t, successor, podEvents("web", 4, 5)...)
	publish(t, successor, podEvents("web", 6, 8)...)
	before := ids(readAll(t, c, podsTopic))

	// as many as the successor: the broker takes it for the same, and says so
	old.Publish(t.Context(), podEvents("web", 4, 5))
	for range 2 {
		late := podEvents("web", 6, 6)
		old.Publish(t.Context(), late)
		if err := late[0].Err; !errors.Is(err, errNotHolder) ||
			sinks.Classify(err) != sinks.Reconnect {
			t.Errorf("got %v, want that another one holds the office", err)
		}
	}
	if after := ids(readAll(t, c, podsTopic)); !slices.Equal(after, before) {
		t.Errorf("the log held %v, and now holds %v", before, after)
	}
	publish(t, successor, podEvents("web", 9, 9)...)
}
