package kafka_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// largeEvent is an event with a payload that a topic takes compressed only.
func largeEvent(pod, of string, n int) *event.Event {
	e := podEvent(pod, n)
	e.Data = []byte(`{"data":"` + strings.Repeat(of, 100_000) + `"}`)
	return e
}

// TestFitted: what Fits has compressed is sent by Publish, and nothing else in its place.
func TestFitted(t *testing.T) {
	c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "40000"}))
	s := openSink(t, c, func(c *kafka.Options) { c.Compression = "lz4" })
	first := largeEvent("web", "a", 1)
	if _, err := s.Lane(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	fits := func(e *event.Event) {
		t.Helper()
		if err := s.Fits(e); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	send := func(events ...*event.Event) {
		t.Helper()
		var messages []*sinks.Message
		for _, e := range events {
			messages = append(messages, &sinks.Message{Event: e})
			want = append(want, string(e.Data))
		}
		publish(t, s, messages...)
	}
	fits(first)
	send(first)
	fits(largeEvent("web", "b", 2)) // never sent
	send(largeEvent("web", "c", 3))
	reused := largeEvent("web", "d", 4)
	fits(reused)
	*reused = *largeEvent("web", "e", 5)
	send(reused)
	last := largeEvent("web", "f", 6)
	fits(last)
	send(last, podEvent("web", 7))
	send(last) // again, as after an answer that did not come
	records := readAll(t, c, podsTopic)
	if len(records) != len(want) {
		t.Fatalf("%d records, want %d", len(records), len(want))
	}
	for i, r := range records {
		if string(r.Value) != want[i] {
			t.Errorf("record %d is %.20q…, want %.20q…", i, r.Value, want[i])
		}
	}
}
