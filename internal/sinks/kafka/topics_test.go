package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestMissingTopic(t *testing.T) {
	s := openSink(t, newCluster(t, kfake.AllowAutoTopicCreation()))
	e := podEvent("web", 1)
	e.Resource = "deployments"
	_, err := s.Lane(t.Context(), e)
	if sinks.Classify(err) != sinks.Retry ||
		!strings.Contains(err.Error(), "kafka-topics.sh --create --topic k8s.test.deployments") {
		t.Errorf("Lane gave %v", err)
	}
}

func TestTopicCreatedLater(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c)
	e := podEvent("web", 1)
	e.Resource = "deployments"
	if _, err := s.Lane(t.Context(), e); err == nil {
		t.Fatal("there is a lane without a topic")
	}
	if err := c.CreateTopic("k8s.test.deployments", 1, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is stored", func() bool {
		m := &sinks.Message{Event: e}
		s.Publish(t.Context(), []*sinks.Message{m})
		if class := sinks.Classify(m.Err); m.Err != nil && class != sinks.Retry && class != sinks.Reconnect {
			t.Fatal(m.Err)
		}
		return m.Err == nil
	})
}

// An event about an informer waits for a topic that is missing: sent as one, it would be in one
// partition only.
func TestPartsOfMissingTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var virtual kfake.VirtualNetwork
		c := newCluster(t, kfake.ListenFn(virtual.Listen))
		s := newSink(t, c, func(c *kafka.Options) { c.Connection.Dial = virtual.DialContext })
		p, err := publisher.New(publisher.Config{Sink: s, Name: "kafka"})
		testkit.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		gap := podEvent("", 1)
		gap.Resource = "deployments"
		parts := make(chan int, 1)
		go func() {
			n, _ := p.Parts(ctx, gap)
			parts <- n
		}()
		time.Sleep(time.Minute)
		testkit.OK(t, c.CreateTopic("k8s.test.deployments", 3, nil))
		if n := <-parts; n != 3 {
			t.Errorf("%d copies, want one for each of 3 partitions", n)
		}
		cancel()
		testkit.OK(t, <-ended)
		c.Close()
	})
}

func TestCreateTopics(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3))
	s := openSink(t, c, func(c *kafka.Options) {
		c.CreateTopics = &kafka.CreateTopics{
			Partitions: 7, ReplicationFactor: 3,
			Config: map[string]string{"retention.ms": "1234567"},
		}
	})
	e := podEvent("web", 1)
	e.Resource = "deployments"
	publish(t, s, &sinks.Message{Event: e})
	info := c.TopicInfo("k8s.test.deployments")
	if n := len(c.PartitionInfos("k8s.test.deployments")); n != 7 {
		t.Errorf("%d partitions", n)
	}
	if got := info.Configs["retention.ms"]; got == nil || *got != "1234567" {
		t.Errorf("retention.ms is %v", got)
	}
}

func TestManyTopics(t *testing.T) {
	of := func(resource string) *event.Event {
		e := podEvent("web", 1)
		e.Resource = resource
		return e
	}
	t.Run("beyond the bound events are refused", func(t *testing.T) {
		s := openSink(t, newCluster(t), func(c *kafka.Options) {
			c.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
			c.MaxTopics = 3
		})
		for i := range 5 {
			_, err := s.Lane(t.Context(), of(fmt.Sprint("r", i)))
			if refused := err != nil && sinks.Classify(err) == sinks.Refused; refused != (i >= 3) ||
				!refused && err != nil {
				t.Errorf("topic %d: %v", i, err)
			}
		}
		publish(t, s, &sinks.Message{Event: of("r0")}) // continues
	})
	t.Run("what was missing a while ago is forgotten", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var virtual kfake.VirtualNetwork
			c := newCluster(t, kfake.ListenFn(virtual.Listen))
			s := openSink(t, c, func(c *kafka.Options) { c.Connection.Dial = virtual.DialContext })
			for _, resource := range []string{"one", "two"} {
				_, _ = s.Lane(t.Context(), of(resource))
			}
			time.Sleep(time.Minute)
			if _, err := s.Lane(t.Context(), of("three")); err == nil || s.Missing() != 1 {
				t.Errorf("%d topics are remembered, %v", s.Missing(), err)
			}
			_ = s.Close()
			c.Close()
		})
	})
}

func TestOpenChecksTopic(t *testing.T) {
	s := newSink(t, newCluster(t), func(c *kafka.Options) {
		c.Topic, c.Cluster = "all.{cluster}", "test"
	})
	err := s.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no topic all.test") {
		t.Errorf("Open gave %v", err)
	}
}

func TestGrowingTopic(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, podsTopic))
	var log strings.Builder
	s := openSink(t, c, logTo(&log))
	before := lanesOf(t, s)
	grow(t, c, 5)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := lanesOf(t, s); !slices.Equal(before, after) {
		t.Errorf("lanes were %v and are %v", before, after)
	}
	if !strings.Contains(log.String(), "more partitions than the sink uses") {
		t.Errorf("the log says nothing of it: %s", log.String())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := lanesOf(t, s); slices.Equal(before, after) {
		t.Errorf("a sink that was closed in between still has the lanes %v", after)
	}
}

func TestTopicGrownBetweenRuns(t *testing.T) {
	for name, constant := range map[string]bool{"met by an event": false, "met by Open": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, kfake.SeedTopics(2, podsTopic))
			run := func(position []byte, more ...func(*kafka.Options)) (s *kafka.Sink,
				lanes []string, reg *prometheus.Registry, log *strings.Builder,
			) {
				reg, log = prometheus.NewRegistry(), new(strings.Builder)
				more = append(more, logTo(log), func(c *kafka.Options) {
					if c.Registry = reg; constant {
						c.Topic = podsTopic
					}
				})
				s = openSink(t, c, more...)
				if err := s.ReadBack(t.Context(), position, func(string) {}); err != nil {
					t.Fatal(err)
				}
				return s, lanesOf(t, s), reg, log
			}
			first, before, _, _ := run(nil)
			position := first.Position()
			grow(t, c, 5)

			kept, lanes, reg, log := run(position)
			if !slices.Equal(lanes, before) {
				t.Errorf("lanes were %v and are %v", before, lanes)
			}
			if got := testkit.Metric(t, reg, "bridge_kafka_unused_partitions"); got != 3 ||
				!strings.Contains(log.String(), "newPartitions: use") {
				t.Errorf("%v unused partitions; log %s", got, log)
			}
			if _, lanes, _, _ := run(kept.Position()); !slices.Equal(lanes, before) {
				t.Errorf("in the run after it lanes are %v", lanes)
			}

			used, lanes, reg, log := run(position,
				func(c *kafka.Options) { c.NewPartitions = kafka.UsePartitions })
			if got := testkit.Metric(t, reg, "bridge_kafka_unused_partitions"); slices.Equal(lanes,
				before) || got != 0 || !strings.Contains(log.String(), "another partition") {
				t.Errorf("lanes %v, %v unused partitions; log %s", lanes, got, log)
			}
			if _, after, _, _ := run(used.Position()); !slices.Equal(after, lanes) {
				t.Errorf("in the run after they moved lanes are %v, and were %v", after, lanes)
			}
		})
	}
}

func TestIdleTopicPin(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, podsTopic))
	s := openSink(t, c)
	before := lanesOf(t, s)
	position := s.Position()
	grow(t, c, 5)
	for range 2 {
		idle := openSink(t, c)
		if err := idle.ReadBack(t.Context(), position, func(string) {}); err != nil {
			t.Fatal(err)
		}
		position = idle.Position()
	}
	s = openSink(t, c)
	if err := s.ReadBack(t.Context(), position, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if after := lanesOf(t, s); !slices.Equal(after, before) {
		t.Errorf("lanes were %v and are %v", before, after)
	}
}

func lanesOf(t *testing.T, s *kafka.Sink) (lanes []string) {
	t.Helper()
	for i := range 20 {
		lane, err := s.Lane(t.Context(), podEvent(strings.Repeat("x", i+1), 1))
		if err != nil {
			t.Fatal(err)
		}
		lanes = append(lanes, lane)
	}
	return lanes
}

// grow gives the pods topic more partitions.
func grow(t *testing.T, c *kfake.Cluster, partitions int32) {
	t.Helper()
	request := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = podsTopic, partitions
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), newClient(t, c))
	if err != nil || answer.Topics[0].ErrorCode != 0 {
		t.Fatal(err, answer)
	}
}

func TestUnsafeSettings(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3))
	insecure, safe := "true", "2"
	if err := c.CreateTopic("k8s.test.jobs", 1,
		map[string]string{
			"unclean.leader.election.enable": insecure,
			"min.insync.replicas":            safe,
		}); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s := openSink(t, c, logTo(&log))
	for _, resource := range []string{"pods", "jobs"} {
		e := podEvent("web", 1)
		e.Resource = resource
		if _, err := s.Lane(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		`topic=k8s.test.pods problem="min.insync.replicas is 1`,
		`topic=k8s.test.jobs problem="unclean.leader.election.enable is true`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), `topic=k8s.test.jobs problem="min`) {
		t.Error("a topic with min.insync.replicas=2 is warned of")
	}
}

func TestLossySettings(t *testing.T) {
	compact, small := "compact", "50000"
	for tombstones, want := range map[bool][]string{
		false: {`problem="cleanup.policy is compact`, `problem="max.message.bytes is 50000`},
		true:  {`problem="max.message.bytes is 50000`},
	} {
		c := newCluster(t)
		if err := c.CreateTopic("k8s.test.jobs", 1, map[string]string{
			"cleanup.policy":    compact,
			"max.message.bytes": small,
		}); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		s := openSink(t, c, logTo(&log), func(c *kafka.Options) { c.Tombstones = tombstones })
		e := podEvent("web", 1)
		e.Resource = "jobs"
		if _, err := s.Lane(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(log.String(), line) {
				t.Errorf("tombstones %v: the log does not say %s:\n%s", tombstones, line,
					log.String())
			}
		}
		if n := strings.Count(log.String(), "keep less"); n != len(want) {
			t.Errorf("tombstones %v: %d warnings:\n%s", tombstones, n, log.String())
		}
	}
}

func TestTimeSettings(t *testing.T) {
	for _, c := range []struct {
		name, timestamps string
		settings         map[string]string
		want             []string
	}{
		{"a topic that keeps records for a while", kafka.EventTime, nil, []string{"retention.ms is 604800000"}},
		{"a compacted topic", kafka.EventTime, map[string]string{"cleanup.policy": "compact"}, nil},
		{"a topic that keeps records forever", kafka.EventTime, map[string]string{"retention.ms": "-1"}, nil},
		{
			"a topic that refuses old records", kafka.EventTime,
			map[string]string{"retention.ms": "-1", "message.timestamp.before.max.ms": "3600000"},
			[]string{"message.timestamp.before.max.ms is 3600000"},
		},
		{
			"a topic with times of its own", kafka.EventTime,
			map[string]string{"message.timestamp.type": "LogAppendTime"},
			[]string{"message.timestamp.type is LogAppendTime"},
		},
		{"the time of sending", kafka.SentTime, map[string]string{"message.timestamp.type": "LogAppendTime"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := newCluster(t)
			if err := cluster.CreateTopic("k8s.test.jobs", 1, c.settings); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			s := openSink(t, cluster, logTo(&log),
				func(cfg *kafka.Options) { cfg.Timestamps = c.timestamps })
			e := podEvent("web", 1)
			e.Resource = "jobs"
			if _, err := s.Lane(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not say %s:\n%s", want, log.String())
				}
			}
			if n := strings.Count(log.String(), "the time of events"); n < len(c.want) || len(c.want) == 0 && n > 0 {
				t.Errorf("%d warnings:\n%s", n, log.String())
			}
		})
	}
}

func TestLostByCompaction(t *testing.T) {
	for policy, want := range map[string]int{"compact": 1, "delete": 0} {
		c := newCluster(t)
		if err := c.CreateTopic("k8s.test.jobs", 1, map[string]string{"cleanup.policy": policy}); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		s := openSink(t, c, logTo(&log), func(c *kafka.Options) {
			c.Tombstones = true
			c.LostByCompaction = func() string { return "of informer a: everything" }
		})
		e := podEvent("web", 1)
		e.Resource = "jobs"
		if _, err := s.Lane(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		const warning = "cleanup.policy is compact: of informer a: everything"
		if n := strings.Count(log.String(), warning); n != want {
			t.Errorf("%s: %d warnings, want %d:\n%s", policy, n, want, log.String())
		}
	}
}

func TestDeadLetter(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "dead"))
	s := openSink(t, c, func(c *kafka.Options) {
		c.DeadLetterTopic, c.Tombstones = "dead", true
	})
	e := podEvent("web", 1)
	e.Op = event.Deleted
	e.Extensions = []event.Attribute{{Name: "team", Value: "shop"}}
	if err := s.DeadLetter(t.Context(), e, errUnreachable, 3); err != nil {
		t.Fatal(err)
	}
	records := readAll(t, c, "dead")
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	got := cloudEvent(t, records[0]).Extensions()
	for name, want := range map[string]string{
		"deadletterreason":   errUnreachable.Error(),
		"deadletterattempts": "3", "deadlettertopic": podsTopic, "team": "shop",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %s", name, got[name], want)
		}
	}
	if len(e.Extensions) != 1 {
		t.Error("the event itself was changed")
	}
}

func TestNoDeadLetterTopic(t *testing.T) {
	s := openSink(t, newCluster(t))
	if err := s.DeadLetter(t.Context(), podEvent("web", 1), errUnreachable, 1); !errors.Is(err,
		sinks.ErrNoDeadLetter) {
		t.Errorf("got %v", err)
	}
}

func TestConfigProblems(t *testing.T) {
	_, err := kafka.New(kafka.Options{
		Connection: kafka.Connection{
			Brokers: []string{"no-port"}, SASL: &kafka.SASL{Mechanism: "GSSAPI"}, Timeout: -1,
		},
		Config: kafka.Config{
			Topic: "k8s/{name}", DeadLetterTopic: "dead letters",
			NewPartitions: "some", Compression: "rar", Timestamps: "never",
		},
		Common:        sinks.Common{Encoding: "xml"},
		MaxBatchBytes: -1,
		Concurrency:   -1,
	})
	if err == nil {
		t.Fatal("New took it")
	}
	for _, want := range []string{
		"no-port", "GSSAPI", "timeout", "k8s/{name}", "dead letters", "newPartitions",
		"rar", "xml", "never", "max batch bytes", "concurrency",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %s: %v", want, err)
		}
	}
}

func TestMetricsAtStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := openSink(t, newCluster(t), func(c *kafka.Options) { c.Registry = registry })
	if got := testkit.Metric(t, registry, "bridge_kafka_batches_total refused"); got != 0 {
		t.Errorf("%v batches were refused", got)
	}
	publish(t, s, podEvents("web", 1, 4)...)
	if got := testkit.Metric(t, registry, "bridge_kafka_records_total"); got != 4 {
		t.Errorf("%v records are counted, want 4", got)
	}
}
