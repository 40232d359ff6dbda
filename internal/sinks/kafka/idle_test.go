package kafka_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// elsewhereTopic is another topic.
const elsewhereTopic = "k8s.test.nodes"

// elsewhere are events that go there.
func elsewhere(from, to int) []*sinks.Message {
	messages := podEvents("node", from, to)
	for _, m := range messages {
		m.Event.Resource = "nodes"
	}
	return messages
}

func recallFrom(t *testing.T, s *kafka.Sink, position []byte) *[]string {
	t.Helper()
	found := new([]string)
	if err := s.Recall(t.Context(), position,
		func(id string) { *found = append(*found, id) }); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestIdleTopicPlace(t *testing.T) {
	c := newCluster(t)
	if err := c.CreateTopic(elsewhereTopic, 1, nil); err != nil {
		t.Fatal(err)
	}
	first := openSink(t, c)
	publish(t, first, podEvents("web", 1, 3)...)
	second := openSink(t, c)
	recallFrom(t, second, first.Position())
	publish(t, second, elsewhere(1, 2)...) // and nothing for pods

	third := openSink(t, c)
	found := recallFrom(t, third, second.Position())
	publish(t, third, podEvents("web", 4, 4)...)
	if len(*found) > 0 {
		t.Errorf("%v were read back, which lie before the place that is known", *found)
	}
	requireLog(t, c, wantIDs("web", 1, 4))
	records := readAll(t, c, podsTopic)
	if records[3].ProducerID != records[0].ProducerID {
		t.Errorf("producer %d does not go on for %d", records[3].ProducerID, records[0].ProducerID)
	}
}

// a broker that has just started knows of none
func TestMissingTopicPlace(t *testing.T) {
	c := newCluster(t)
	if err := c.CreateTopic(elsewhereTopic, 1, nil); err != nil {
		t.Fatal(err)
	}
	first := openSink(t, c)
	publish(t, first, podEvents("web", 1, 3)...)
	publish(t, first, elsewhere(1, 3)...)
	if err := c.DeleteTopic(elsewhereTopic); err != nil {
		t.Fatal(err)
	}
	second := openSink(t, c)
	recallFrom(t, second, first.Position())
	if places := kafka.PlacesOf(second.Position()); len(places) != 2 ||
		places[elsewhereTopic] != 1 {
		t.Errorf("the position has places %v", places)
	}
}

func TestOutline(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(3, podsTopic))
	first := openSink(t, c)
	publish(t, first, podEvents("web", 1, 3)...)
	outline := first.Outline(first.Position())
	publish(t, first, podEvents("web", 4, 5)...)
	if places := kafka.PlacesOf(outline); len(places) > 0 {
		t.Errorf("the outline has places %v", places)
	}
	grow(t, c, 5)
	second := openSink(t, c)
	found := recallFrom(t, second, outline)
	for pod := range 40 {
		lane, err := second.Lane(t.Context(), podEvent(fmt.Sprint(pod), 1))
		if err != nil || lane >= podsTopic+"/3" {
			t.Errorf("an event goes to %s, which there was not before (%v)", lane, err)
		}
	}
	for _, id := range []string{"workloads/uid-web/4", "workloads/uid-web/5"} {
		if !slices.Contains(*found, id) {
			t.Errorf("%s was not found among %v", id, *found)
		}
	}
}
