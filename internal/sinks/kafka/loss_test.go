package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// losses inspects until something is lost.
func losses(t *testing.T, s *kafka.Sink) []sinks.Loss {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if found := s.Inspect(t.Context()); len(found) > 0 {
			return found
		}
	}
	t.Fatal("nothing is lost")
	return nil
}

func TestLoss(t *testing.T) {
	create := func(c *kafka.Options) {
		c.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
	}
	want := sinks.Loss{Destination: podsTopic + "/0", Reason: sinks.Recreated, Before: 5}
	for name, c := range map[string]struct {
		change    func(*kafka.Options)
		recreated bool // by somebody else
		publishes bool // before it is inspected
	}{
		"a topic that is deleted is made again":                        {create, false, false},
		"a topic that somebody recreated":                              {func(*kafka.Options) {}, true, false},
		"a topic that somebody recreated, and that has got new events": {func(*kafka.Options) {}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			s := openSink(t, cluster, c.change)
			publish(t, s, podEvents("web", 1, 5)...)
			if found := s.Inspect(t.Context()); len(found) > 0 {
				t.Fatalf("lost %v", found)
			}
			testkit.OK(t, cluster.DeleteTopic(podsTopic))
			if c.recreated {
				testkit.OK(t, cluster.CreateTopic(podsTopic, 1, nil))
			}
			if c.publishes {
				publish(t, s, podEvents("web", 6, 6)...)
			}
			if found := losses(t, s); len(found) != 1 || found[0] != want {
				t.Errorf("lost %v, want %v", found, want)
			}
			publish(t, s, podEvents("web", 7, 7)...)
			if found := s.Inspect(t.Context()); len(found) > 0 {
				t.Errorf("lost again: %v", found)
			}
		})
	}
}

// A partition that ends before what it has acknowledged has lost its end, once a second answer says
// so too.
func TestTruncated(t *testing.T) {
	for name, c := range map[string]struct {
		answers int
		want    []sinks.Loss
	}{
		"a deposed leader has answered": {1, nil},
		"the new leader lags":           {2, []sinks.Loss{{Destination: podsTopic + "/0", Reason: sinks.Truncated, Before: 5, Now: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t)
			s := openSink(t, cluster)
			publish(t, s, podEvents("web", 1, 5)...)
			cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				asked := req.(*kmsg.ListOffsetsRequest)
				if asked.Topics[0].Partitions[0].Timestamp != -1 || c.answers == 0 {
					return nil, nil, false
				}
				c.answers--
				return endsAt(asked, 3), nil, true
			})
			if found := s.Inspect(t.Context()); !slices.Equal(found, c.want) {
				t.Errorf("lost %v, want %v", found, c.want)
			}
		})
	}
}

// Records that are deleted from a compacted topic are rows that a view lacks.
func TestViewPurged(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c, func(o *kafka.Options) { o.View = true }, func(o *kafka.Options) {
		o.Topic, o.Tombstones = "view", true
		o.CreateTopics = &kafka.CreateTopics{
			Partitions: 1, ReplicationFactor: 1, Config: map[string]string{"cleanup.policy": "compact"},
		}
	})
	publishEvents(t, s, podEvent("web", 1), podEvent("api", 1))
	if found := s.Inspect(t.Context()); len(found) > 0 {
		t.Fatalf("lost %v", found)
	}
	testkit.OK(t, c.DeleteRecords("view", 0, 2))
	found := losses(t, s)
	if want := (sinks.Loss{Destination: "view/0", Reason: sinks.Purged, Before: 0, Now: 2}); found[0] != want {
		t.Errorf("lost %v, want %v", found, want)
	}
}

// A view's topic that is compacted no more takes nothing until it is again.
func TestViewPolicyChanged(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c, asView, func(o *kafka.Options) { o.Topic = "view" })
	publishEvents(t, s, podEvent("web", 1))
	for _, policy := range []string{"delete", "compact", "compact,delete", "compact"} {
		setTopics(t, c, "cleanup.policy", policy)
		if found := s.Inspect(t.Context()); len(found) > 0 {
			t.Errorf("lost %v", found)
		}
		m := &sinks.Message{Event: podEvent("web", 2)}
		s.Publish(t.Context(), []*sinks.Message{m})
		want := ""
		if policy != "compact" {
			want = "a view needs compact"
		}
		for what, err := range map[string]error{"it is blocked": s.Blocked(), "publish": m.Err} {
			if got := fmt.Sprint(err); (err != nil) != (want != "") || !strings.Contains(got, want) {
				t.Errorf("%s: %s: %s", policy, what, got)
			}
		}
		if m.Err != nil && sinks.Classify(m.Err) != sinks.Retry {
			t.Errorf("%s: %v is %v", policy, m.Err, sinks.Classify(m.Err))
		}
	}
}

// A topic that somebody has to make again is why the sink stores nothing, though nothing is sent.
func TestDeletedTopic(t *testing.T) {
	cluster := newCluster(t)
	s := openSink(t, cluster)
	publish(t, s, podEvents("web", 1, 5)...)
	testkit.OK(t, cluster.DeleteTopic(podsTopic))
	s.Inspect(t.Context())
	if err := s.Blocked(); err != nil {
		t.Errorf("after the first look it is blocked: %v", err)
	}
	s.Inspect(t.Context())
	if err := s.Blocked(); err == nil || !strings.Contains(err.Error(), "does not exist any more; create it again") {
		t.Errorf("it is blocked: %v", err)
	}
	testkit.OK(t, cluster.CreateTopic(podsTopic, 1, nil))
	if found := losses(t, s); len(found) != 1 || found[0].Reason != sinks.Recreated {
		t.Errorf("lost %v", found)
	}
	if err := s.Blocked(); err != nil {
		t.Errorf("it is there, and blocked: %v", err)
	}
}

const aWeek = "604800000" // ms

// keeping sets the topic "kept", which keeps records for some ms, and so many bytes of them.
func keeping(ms, bytes string) func(*kafka.Options) {
	return func(o *kafka.Options) {
		o.Topic = "kept"
		o.CreateTopics = &kafka.CreateTopics{
			Partitions: 1, ReplicationFactor: 1, Config: map[string]string{"retention.ms": ms, "retention.bytes": bytes},
		}
	}
}

// Records that somebody deletes from a topic are lost; those that retention removes are not.
func TestPurged(t *testing.T) {
	for name, c := range map[string]struct {
		retention string // in ms
		bytes     string
		noticed   bool
	}{
		"of a topic that keeps them":            {aWeek, "-1", true},
		"of a topic that keeps all":             {"-1", "-1", true},
		"of a topic that keeps them for 1 ms":   {"1", "-1", false},
		"of a topic that keeps some bytes only": {"-1", "1000", false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t)
			s := openSink(t, cluster, keeping(c.retention, c.bytes))
			publishEvents(t, s, podEvent("web", 1), podEvent("web", 2), podEvent("web", 3), podEvent("web", 4))
			if found := s.Inspect(t.Context()); len(found) > 0 {
				t.Fatalf("lost %v", found)
			}
			testkit.OK(t, cluster.DeleteRecords("kept", 0, 3))
			var want []sinks.Loss
			if c.noticed {
				want = []sinks.Loss{{Destination: "kept/0", Reason: sinks.Purged, Now: 3}}
			}
			if found := s.Inspect(t.Context()); !slices.Equal(found, want) {
				t.Errorf("lost %v, want %v", found, want)
			}
			publishEvents(t, s, podEvent("web", 5))
			if found := s.Inspect(t.Context()); len(found) > 0 {
				t.Errorf("lost again: %v", found)
			}
		})
	}
}

// What is deleted is noticed however long the sink runs; what retention may delete is no loss.
func TestPurgedAfterDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var virtual kfake.VirtualNetwork
		cluster := newCluster(t, kfake.ListenFn(virtual.Listen))
		defer cluster.Close()
		s := openSink(t, cluster, keeping(aWeek, "-1"), func(o *kafka.Options) { o.Connection.Dial = virtual.DialContext })
		defer s.Close()
		const days = 30
		for day := range days {
			publishEvents(t, s, podEvent("web", day+1))
			if found := s.Inspect(t.Context()); len(found) > 0 {
				t.Fatalf("day %d: lost %v", day, found)
			}
			time.Sleep(24 * time.Hour)
		}
		if at := cluster.PartitionInfo("kept", 0).LogStartOffset; at == 0 {
			t.Fatal("retention deleted nothing")
		}
		testkit.OK(t, cluster.DeleteRecords("kept", 0, days))
		found := s.Inspect(t.Context())
		if len(found) != 1 || found[0].Reason != sinks.Purged || found[0].Now != days {
			t.Errorf("lost %v", found)
		}
	})
}

// Records that somebody deletes while no sink is open are lost too, where the topic keeps them that
// long. It is noticed once, without an event.
func TestPurgedWhileDown(t *testing.T) {
	purged := sinks.Loss{Destination: "kept/0", Reason: sinks.Purged, Now: 2}
	again := sinks.Loss{Destination: "kept/0", Reason: sinks.Purged, Before: 2, Now: 3}
	for name, c := range map[string]struct {
		times     string
		retention string
		down      time.Duration
		deletes   int64
		want      []sinks.Loss // by the second sink
		then      []sinks.Loss // by the third
	}{
		"nothing":                      {kafka.SentTime, aWeek, time.Minute, 0, nil, nil},
		"records":                      {kafka.SentTime, aWeek, time.Minute, 2, []sinks.Loss{purged}, []sinks.Loss{again}},
		"of a topic that keeps all":    {kafka.SentTime, "-1", 100 * 24 * time.Hour, 2, []sinks.Loss{purged}, []sinks.Loss{again}},
		"that retention may delete":    {kafka.SentTime, aWeek, 4 * 24 * time.Hour, 2, nil, nil},
		"that have the time of events": {kafka.EventTime, aWeek, time.Minute, 2, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var virtual kfake.VirtualNetwork
				cluster := newCluster(t, kfake.ListenFn(virtual.Listen))
				defer cluster.Close()
				open := func(position []byte) *kafka.Sink {
					s := openSink(t, cluster, keeping(c.retention, "-1"), func(o *kafka.Options) {
						o.Timestamps, o.Connection.Dial = c.times, virtual.DialContext
					})
					recallFrom(t, s, position)
					return s
				}
				inspect := func(what string, s *kafka.Sink, want []sinks.Loss) {
					for range 3 {
						if found := s.Inspect(t.Context()); !slices.Equal(found, want) {
							t.Errorf("%s: lost %v, want %v", what, found, want)
						}
						want = nil
						time.Sleep(5 * time.Second)
					}
				}
				first := open(nil)
				publishEvents(t, first, podEvent("web", 1), podEvent("web", 2), podEvent("web", 3))
				position := first.Position() // as by a crash: it was never inspected
				testkit.OK(t, first.Close())
				time.Sleep(c.down)
				testkit.OK(t, cluster.DeleteRecords("kept", 0, c.deletes))

				second := open(position)
				inspect("the second sink", second, c.want)
				position = second.Position() // without an event
				testkit.OK(t, second.Close())
				if c.deletes > 0 {
					testkit.OK(t, cluster.DeleteRecords("kept", 0, 3))
				}
				third := open(position)
				inspect("the third sink", third, c.then)
				publishEvents(t, third, podEvent("web", 4))
				inspect("the third sink, after an event", third, nil)
				testkit.OK(t, third.Close())
			})
		})
	}
}

// What is done to a view while no sink is open is noticed without an event, once.
func TestViewLossWhileDown(t *testing.T) {
	remove := func(t *testing.T, c *kfake.Cluster, _ *kgo.Client, topic string) {
		t.Helper()
		testkit.OK(t, c.DeleteTopic(topic))
	}
	purge := func(before int64) func(*testing.T, *kfake.Cluster, *kgo.Client, string) {
		return func(t *testing.T, c *kfake.Cluster, _ *kgo.Client, topic string) {
			t.Helper()
			testkit.OK(t, c.DeleteRecords(topic, 0, before))
		}
	}
	removeRow := func(t *testing.T, _ *kfake.Cluster, others *kgo.Client, topic string) {
		t.Helper()
		record := &kgo.Record{Topic: topic, Key: []byte(podEvent("web", 1).PartitionKey)}
		testkit.OK(t, others.ProduceSync(t.Context(), record).FirstErr())
	}
	recreated := sinks.Loss{Reason: sinks.Recreated, Before: 3}
	for name, c := range map[string]struct {
		do    func(*testing.T, *kfake.Cluster, *kgo.Client, string)
		crash bool // an event is stored behind the saved position
		want  []sinks.Loss
	}{
		"nothing":                          {func(*testing.T, *kfake.Cluster, *kgo.Client, string) {}, false, nil},
		"nothing, after a crash":           {func(*testing.T, *kfake.Cluster, *kgo.Client, string) {}, true, nil},
		"a topic is deleted":               {remove, false, []sinks.Loss{recreated}},
		"a topic is deleted after a crash": {remove, true, []sinks.Loss{recreated}},
		"a topic is recreated": {func(t *testing.T, c *kfake.Cluster, _ *kgo.Client, topic string) {
			t.Helper()
			testkit.OK(t, c.DeleteTopic(topic))
			testkit.OK(t, c.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact"}))
		}, false, []sinks.Loss{recreated}},
		"records are deleted":               {purge(1), false, []sinks.Loss{{Reason: sinks.Purged, Now: 1}}},
		"all records are deleted":           {purge(3), false, []sinks.Loss{{Reason: sinks.Purged, Now: 3}}},
		"records are deleted after a crash": {purge(4), true, []sinks.Loss{{Reason: sinks.Purged, Now: 4}}},
		"a row is deleted":                  {removeRow, false, []sinks.Loss{{Reason: sinks.Unverified}}},
		"a row is deleted after a crash":    {removeRow, true, []sinks.Loss{{Reason: sinks.Unverified}}},
	} {
		for topic, name := range map[string]string{
			"view.{resource}": name, "view": name + ", that is looked up at the start",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var virtual kfake.VirtualNetwork
					cluster := newCluster(t, kfake.ListenFn(virtual.Listen))
					defer cluster.Close()
					run := func(position []byte) *kafka.Sink {
						s := openSink(t, cluster, asView, func(o *kafka.Options) {
							o.Topic, o.Cluster, o.CreateTopics.Partitions = topic, "test", 1
							o.DeadLetterTopic, o.Connection.Dial = "dead.{resource}", virtual.DialContext
						})
						recallFrom(t, s, position)
						return s
					}
					inspect := func(s *kafka.Sink) (found []sinks.Loss) {
						for range 6 {
							for _, loss := range s.Inspect(t.Context()) {
								loss.Round = 0
								found = append(found, loss)
							}
							time.Sleep(5 * time.Second)
						}
						return found
					}
					first := run(nil)
					publishEvents(t, first, podEvent("api", 1), podEvent("web", 1), podEvent("db", 1))
					testkit.OK(t, first.DeadLetter(t.Context(), podEvent("web", 2), errUnset, 1))
					first.Inspect(t.Context())
					position := first.Position()
					if c.crash {
						publishEvents(t, first, podEvent("api", 3))
					}
					testkit.OK(t, first.Close())
					others, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(virtual.DialContext))
					testkit.OK(t, err)
					defer others.Close()
					c.do(t, cluster, others, strings.ReplaceAll(topic, "{resource}", "pods"))
					testkit.OK(t, cluster.DeleteTopic("dead.pods"))

					second := run(position)
					found := inspect(second)
					for i := range found {
						found[i].Destination = ""
					}
					if !slices.Equal(found, c.want) {
						t.Errorf("lost %v, want %v", found, c.want)
					}
					publishEvents(t, second, podEvent("web", 3))
					if again := inspect(second); len(again) > 0 {
						t.Errorf("lost again: %v", again)
					}
					position = second.Position()
					testkit.OK(t, second.Close())
					third := run(position)
					if again := inspect(third); len(again) > 0 {
						t.Errorf("lost again in the next run: %v", again)
					}
					testkit.OK(t, third.Close())
					if cluster.TopicInfo("dead.pods") != nil {
						t.Error("the topic of dead letters is made as if it were a view")
					}
				})
			})
		}
	}
}
