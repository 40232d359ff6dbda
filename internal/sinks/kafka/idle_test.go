package kafka_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
	if err := s.ReadBack(t.Context(), position,
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
		t.Errorf("the lane resumed as producer %d, want %d", records[3].ProducerID, records[0].ProducerID)
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

// Each run writes to other topics, as with topics that are named by labels.
func TestManyIdleTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		var virtual kfake.VirtualNetwork
		c := newCluster(t, kfake.ListenFn(virtual.Listen))
		of := func(topic, n int) *sinks.Message {
			m := podEvents("web", n, n)[0]
			m.Event.Resource = fmt.Sprintf("team%02d", topic)
			return m
		}
		names := func(from, to int) (all []string) {
			for i := from; i < to; i++ {
				all = append(all, fmt.Sprintf("k8s.test.team%02d", i))
			}
			return all
		}
		var position []byte
		// run begins one a minute after the last.
		run := func() (s *kafka.Sink, found *[]string) {
			time.Sleep(time.Minute)
			s = openSink(t, c, func(c *kafka.Options) {
				c.Connection.Dial, c.MaxTopics = virtual.DialContext, most
				c.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
			})
			return s, recallFrom(t, s, position)
		}
		want := func(what string, topics []string) {
			t.Helper()
			t.Logf("%s the position has %d bytes", what, len(position))
			if got := kafka.TopicsOf(position); !slices.Equal(got, topics) {
				t.Errorf("%s the position has the topics %v, want %v", what, got, topics)
			}
		}
		next := 0
		for n := range 6 {
			s, _ := run()
			for range most {
				publish(t, s, of(next, 1))
				next++
			}
			position = s.Position()
			want(fmt.Sprint("after run ", n), names(max(0, next-2*most), next))
		}
		dying, _ := run()
		publish(t, dying, of(next-most-1, 2)) // the next run leaves it out, but reads it back
		s, found := run()
		if want := []string{"workloads/uid-web/2"}; !slices.Equal(*found, want) {
			t.Errorf("of what is left out %v was read back, want %v", *found, want)
		}
		position = s.Position()
		want("after a run that has read all", names(next-most, next))
		for range 3 {
			s, _ := run()
			position = s.Position()
			want("after a run without events", names(next-most, next))
		}
		if outline, _ := run(); len(kafka.TopicsOf(outline.Outline(position))) != most {
			t.Errorf("the outline is %s", outline.Outline(position))
		}

		dying, _ = run()
		publishEach(t, dying, of(0, 2), of(next-1, 2)) // one that is forgotten, and one that is not
		s, found = run()
		if want := []string{"workloads/uid-web/2"}; !slices.Equal(*found, want) {
			t.Errorf("of what is kept %v was read back, want %v", *found, want)
		}
		*found = nil
		if _, err := s.Lane(t.Context(), of(0, 3).Event); err != nil {
			t.Error(err)
		}
		if want := []string{"workloads/uid-web/2"}; !slices.Equal(*found, want) {
			t.Errorf("of what was forgotten %v was read back, want %v", *found, want)
		}
		position = dying.Position()
		want("when one is busy again", append(names(0, 1), names(next-most, next)...))
		c.Close()
	})
}
