package kafkatest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

var errNotHolder = errors.New("another one holds the office")

// TestSucceededProcess has a process continue that was stopped while its
// successor continued with its producer.
func TestSucceededProcess(t *testing.T) {
	c := broker(t)
	topic := fmt.Sprintf("succeeded%d", destinations.Add(1))
	var succeeded atomic.Bool
	onTopic := func(k *kafka.Options) {
		k.Topic = topic
		k.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
	}
	old := openSink(t, c, onTopic, func(k *kafka.Options) {
		k.Confirm = func(context.Context) error {
			if succeeded.Load() {
				return errNotHolder
			}
			return nil
		}
	})
	publishAs(t, old, sinktest.NewEvent("web", 1, 300))
	successor := openSink(t, c, onTopic)
	must(t, successor.ReadBack(t.Context(), old.Position(), func(id string) { t.Errorf("recalled %s, which lies before the position", id) }))
	succeeded.Store(true)
	publishAs(t, successor, sinktest.NewEvent("web", 2, 300))
	publishAs(t, successor, sinktest.NewEvent("web", 3, 300))

	old.Publish(t.Context(), []*sinks.Message{{Event: sinktest.NewEvent("web", 2, 300)}}) // in the successor's place: the broker takes it for the same
	late := []*sinks.Message{{Event: sinktest.NewEvent("web", 3, 300)}, {Event: sinktest.NewEvent("web", 4, 300)}}
	old.Publish(t.Context(), late)
	if !errors.Is(late[0].Err, errNotHolder) {
		t.Errorf("got %v, want that another one holds the office", late[0].Err)
	}
	publishAs(t, successor, sinktest.NewEvent("web", 4, 300))
	if n := len(readAll(t, c, topic)); n != 4 {
		t.Errorf("the topic holds %d records, want 4", n)
	}
}
