package kafka_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// named gives a sink its name.
func named(name string, topic string, t *testing.T) func(*kafka.Options) {
	return func(c *kafka.Options) {
		c.Name, c.Cluster = name, "test"
		c.Topic, c.DeadLetterTopic = topic, "dead"
	}
}

func TestSharedTopic(t *testing.T) {
	for _, encoding := range sinks.Encodings {
		t.Run(encoding, func(t *testing.T) {
			c := newCluster(t, kfake.SeedTopics(1, podsTopic, "lake.pods", "dead"))
			encoded := func(c *kafka.Options) { c.Encoding = encoding }
			audit := openSink(t, c, named("audit", podsTopic, t), encoded)
			lake := openSink(t, c, named("lake", "lake.{resource}", t), encoded)
			shared := openSink(t, c, named("shared", podsTopic, t), encoded)
			publish(t, lake, podEvents("web", 1, 1)...)
			publish(t, shared, podEvents("web", 1, 1)...)
			if err := lake.DeadLetter(t.Context(), podEvent("web", 2), errUnreachable,
				1); err != nil {
				t.Fatal(err)
			}
			ofLake, ofShared := lake.Position(), shared.Position()
			publish(t, audit, podEvents("web", 3, 3)...)
			for _, dying := range []*kafka.Sink{audit, lake} {
				if err := dying.DeadLetter(t.Context(),
					podEvent("web", map[bool]int{true: 4, false: 5}[dying == audit]),
					errUnreachable, 1); err != nil {
					t.Fatal(err)
				}
			}
			if found := recallFrom(t, openSink(t, c, named("lake", "lake.{resource}", t), encoded),
				ofLake); !slices.Equal(*found, []string{"workloads/uid-web/5"}) {
				t.Errorf("lake recalls %v, want its own dead letter", *found)
			}
			if found := recallFrom(t, openSink(t, c, named("shared", podsTopic, t), encoded),
				ofShared); len(*found) > 0 {
				t.Errorf("shared recalls %v, which audit has sent", *found)
			}
		})
	}
}

func TestRecordWithoutSink(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, podsTopic, "dead"))
	unnamed := openSink(t, c)
	publish(t, unnamed, podEvents("web", 1, 1)...)
	position := unnamed.Position()
	publish(t, unnamed, podEvents("web", 2, 2)...)
	t.Run("a named sink does not recall it", func(t *testing.T) {
		if found := recallFrom(t, openSink(t, c, named("audit", podsTopic, t)),
			position); len(*found) > 0 {
			t.Errorf("recalled %v", *found)
		}
	})
	t.Run("a sink without a name does", func(t *testing.T) {
		if found := recallFrom(t, openSink(t, c), position); !slices.Equal(*found,
			[]string{"workloads/uid-web/2"}) {
			t.Errorf("recalled %v", *found)
		}
	})
}

func TestUnansweredDeadLetter(t *testing.T) {
	c := newCluster(t, kfake.SleepOutOfOrder(), kfake.SeedTopics(1, "dead"))
	s := openSink(t, c, func(c *kafka.Options) { c.DeadLetterTopic = "dead" })
	holdNext(t, c, func(ctx context.Context) {
		if err := s.DeadLetter(ctx, podEvent("a", 1), errUnreachable, 1); !errors.Is(err,
			context.Canceled) {
			t.Error(err)
		}
	})()
	for _, pod := range []string{"b", "a"} { // another worker is faster
		if err := s.DeadLetter(t.Context(), podEvent(pod, 1), errUnreachable, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := ids(readAll(t, c, "dead")), []string{"uid-a/1", "uid-b/1"}; !slices.Equal(got,
		want) {
		t.Errorf("dead letters %v, want %v", got, want)
	}
}
