package kafka_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

func asView(c *kafka.Options) {
	c.View, c.Tombstones = true, true
	c.CreateTopics = &kafka.CreateTopics{
		Partitions: 2, ReplicationFactor: 1, Config: map[string]string{"cleanup.policy": "compact"},
	}
}

// table is what a reader of the topic has in the end: the last value of each key, without nulls.
func table(t *testing.T, c *kfake.Cluster) (keys []string) {
	t.Helper()
	last := map[string]bool{}
	for _, r := range readAll(t, c, podsTopic) {
		if r.Value == nil {
			delete(last, string(r.Key))
		} else {
			last[string(r.Key)] = true
		}
	}
	return slices.Sorted(maps.Keys(last))
}

// publishEvents publishes one event after the other, each in its lane.
func publishEvents(t *testing.T, s *kafka.Sink, events ...*event.Event) {
	t.Helper()
	for _, e := range events {
		if _, err := s.Lane(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		publish(t, s, &sinks.Message{Event: e})
	}
}

// listEnd is the end of a list of pods.
func listEnd(version int) *event.Event {
	e := podEvent("", version)
	e.ID = fmt.Sprintf("workloads/pods/synced/%d/epoch/1", version)
	e.Op, e.Type, e.CompactionKey = event.Synced, "dev.kubebridge.informer.synced",
		"informers/workloads/pods/synced"
	e.PartitionKey, e.Namespace, e.UID = "pods", "", ""
	return e
}

// exists reports whether a pod is one of these.
func exists(names ...string) func(namespace, name string) (bool, error) {
	return func(namespace, name string) (bool, error) {
		return namespace == "shop" && slices.Contains(names, name), nil
	}
}

// endList publishes the end of a list of pods to each partition, as the bridge does.
func endList(t *testing.T, s *kafka.Sink, version int, names ...string) {
	t.Helper()
	e := listEnd(version)
	parts, err := s.Parts(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for part := range parts {
		part := e.Copy(part)
		publish(t, s, &sinks.Message{Event: &part, Exists: exists(names...)})
	}
}

// The row of a deleted object goes although the topic refuses its event, also at the end of a list.
func TestRefusedDelete(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := openSink(t, c, asView)
	publishEvents(t, s, podEvent("web", 1), podEvent("api", 1), podEvent("job", 1))
	setTopics(t, c, "max.message.bytes", "300")
	deleted := podEvent("web", 2)
	deleted.Op = event.Deleted
	m := &sinks.Message{Event: deleted}
	for range 2 { // the first refusal shows the limit
		s.Publish(t.Context(), []*sinks.Message{m})
	}
	if sinks.Classify(m.Err) != sinks.Refused {
		t.Fatalf("the delete got %v", m.Err)
	}
	if err := s.DeadLetter(t.Context(), deleted, m.Err, 1); !errors.Is(err, sinks.ErrNoDeadLetter) {
		t.Fatalf("the letter got %v", err)
	}
	if got, want := table(t, c), []string{"pods/shop/api", "pods/shop/job"}; !slices.Equal(got, want) {
		t.Errorf("the topic has %q, want %q", got, want)
	}
	end := listEnd(9)
	parts, err := s.Parts(t.Context(), end)
	if err != nil {
		t.Fatal(err)
	}
	for part := range parts {
		part := end.Copy(part)
		m := &sinks.Message{Event: &part, Exists: exists("job")}
		for range 3 {
			s.Publish(t.Context(), []*sinks.Message{m})
		}
	}
	if got, want := table(t, c), []string{"pods/shop/job"}; !slices.Equal(got, want) {
		t.Errorf("behind a list the topic has %q, want %q", got, want)
	}
}

func TestView(t *testing.T) {
	for _, encoding := range sinks.Encodings {
		t.Run(encoding, func(t *testing.T) {
			change := func(c *kafka.Options) {
				asView(c)
				c.Encoding = encoding
				c.Informers = func() []string { return []string{"workloads", "batch"} }
			}
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			first := openSink(t, c, change)
			other, orphan, deleted := podEvent("other", 1), podEvent("orphan", 1), podEvent("deleted", 2)
			other.Informer, orphan.Informer, deleted.Op = "batch", "renamed", event.Deleted
			for i := range 30 {
				publishEvents(t, first, podEvent(fmt.Sprint("web-", i), 1))
			}
			publishEvents(t, first, podEvent("deleted", 1), deleted, other, orphan)
			_ = first.Close()

			second := openSink(t, c, change) // it knows nothing
			publishEvents(t, second, podEvent("web-3", 5), podEvent("web-4", 1))
			endList(t, second, 9, "web-3", "web-4")
			want := []string{
				"informers/workloads/pods/synced", "pods/shop/other", "pods/shop/web-3", "pods/shop/web-4",
			}
			if got := table(t, c); !slices.Equal(got, want) {
				t.Errorf("the topic has %q, want %q", got, want)
			}
			for _, r := range readAll(t, c, podsTopic) {
				id, _ := header(r, "ce_id")
				if encoding == sinks.Binary && string(r.Key) == "pods/shop/web-7" && r.Offset > 25 &&
					len(r.Headers) > 0 && id != "uid-web-7/deleted/epoch/1" {
					t.Errorf("web-7 is deleted as %s", id)
				}
			}
			t.Run("nothing more is deleted by the same list", func(t *testing.T) {
				before := len(readAll(t, c, podsTopic))
				endList(t, second, 10, "web-3", "web-4")
				if came := len(readAll(t, c, podsTopic)) - before; came != 2 {
					t.Errorf("%d records came, want the end of the list in each partition", came)
				}
			})
		})
	}
}

// A broker that refuses the delete of an object takes its tombstone, and all others.
func TestViewRefusedDelete(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	onePartition := func(c *kafka.Options) { c.CreateTopics.Partitions = 1 }
	first := openSink(t, c, asView, onePartition)
	publishEvents(t, first, podEvent("web", 1), podEvent("bad", 1), podEvent("api", 1))
	_ = first.Close()

	second := openSink(t, c, asView, onePartition) // it knows nothing
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.PolicyViolation, Count: -1,
		When: func(r kmsg.Request) bool {
			records := r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
			return bytes.Contains(records, []byte("uid-bad/deleted/epoch/1"))
		},
	})
	end, other := listEnd(9), podEvent("other", 1)
	other.Informer = "batch"
	if _, err := second.Lane(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	publish(t, second, &sinks.Message{Event: end, Exists: exists("web")}, &sinks.Message{Event: other})
	want := []string{"informers/workloads/pods/synced", "pods/shop/other", "pods/shop/web"}
	if got := table(t, c); !slices.Equal(got, want) {
		t.Errorf("the topic has %q, want %q", got, want)
	}
	if n := second.Sweeps(); n != 0 {
		t.Errorf("%d sweeps are kept", n)
	}
}

// A view needs a topic that is compacted and deletes nothing.
func TestViewWithoutCompaction(t *testing.T) {
	for policy, refused := range map[string]bool{
		"delete": true, "compact,delete": true, "compact": false,
	} {
		t.Run(policy, func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if err := c.CreateTopic(podsTopic, 1, map[string]string{
				"cleanup.policy": policy,
			}); err != nil {
				t.Fatal(err)
			}
			_, err = openSink(t, c, asView).Lane(t.Context(), podEvent("web", 1))
			if (err != nil) != refused {
				t.Fatalf("got %v", err)
			}
			if refused && (sinks.Classify(err) != sinks.Retry ||
				!strings.Contains(err.Error(), "cleanup.policy") ||
				!strings.Contains(err.Error(), "kafka-configs.sh")) {
				t.Errorf("%v (%v)", err, sinks.Classify(err))
			}
			if !refused {
				return
			}
			topics, connect := newSink(t, c, asView).Check(t.Context(), []string{podsTopic})
			if connect != nil || len(topics) != 1 {
				t.Errorf("Check gave %v, %v", topics, connect)
			}
		})
	}
}

// The dead letters of a view are no view: their topic is made with cleanup.policy delete, and taken
// with it.
func TestViewLetters(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for range 2 { // the topics are made, and then there
		s := openSink(t, c, asView, func(o *kafka.Options) { o.DeadLetterTopic = "dead" })
		publishEvents(t, s, podEvent("web", 1))
		if err := s.DeadLetter(t.Context(), podEvent("web", 2), errors.New("refused"), 1); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		for topic, want := range map[string]string{podsTopic: "compact", "dead": "delete"} {
			if got := c.TopicInfo(topic).Configs["cleanup.policy"]; got == nil || *got != want {
				t.Errorf("cleanup.policy of %s is %v, want %s", topic, got, want)
			}
		}
	}
}

// Compaction removes what a crash left behind the saved position, all but the newest version of an
// object. Were that one not sent again, the older ones that are sent would be the table's.
func TestViewCompactedBeforeReadBack(t *testing.T) {
	onePartition := func(o *kafka.Options) { asView(o); o.CreateTopics.Partitions = 1 }
	for name, kept := range map[string][]*event.Event{
		"from the start on": nil, "in the middle": {podEvent("api", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			dying := openSink(t, c, onePartition)
			publishEvents(t, dying, podEvent("web", 1))
			position := dying.Position()
			publishEvents(t, dying, kept...)
			publishEvents(t, dying, podEvent("web", 2), podEvent("web", 3), podEvent("web", 4))
			c.Compact()

			s := openSink(t, c, onePartition)
			found := recallFrom(t, s, position)
			for version := 2; version <= 4; version++ {
				if e := podEvent("web", version); !slices.Contains(*found, e.MessageID()) {
					publishEvents(t, s, e)
				}
			}
			end := c.PartitionInfos(podsTopic)[0].HighWatermark
			client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableFetchSessions(),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{podsTopic: {0: kgo.NewOffset().At(end - 1)}}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			last := ids(client.PollFetches(t.Context()).Records())
			if want := []string{podEvent("web", 4).ID}; !slices.Equal(last, want) {
				t.Errorf("the table has %v, want %v: read back were %v", last, want, *found)
			}
		})
	}
	t.Run("without it, nothing is sent again", func(t *testing.T) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		dying := openSink(t, c, onePartition)
		publishEvents(t, dying, podEvent("web", 1))
		position := dying.Position()
		publishEvents(t, dying, podEvent("web", 2), podEvent("web", 3))
		if found := recallFrom(t, openSink(t, c, onePartition), position); len(*found) != 2 {
			t.Errorf("read back were %v", *found)
		}
	})
}

// What others have written to a view is found by its offsets, and only that is read: of the objects
// that are sent then those are stored whose key was written by others.
func TestRowsOfOthers(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c, asView, func(o *kafka.Options) {
		o.Topic, o.Name, o.CreateTopics.Partitions = "view", "mine", 1
	})
	others, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("view"))
	testkit.OK(t, err)
	defer others.Close()
	write := func(name string, value []byte) {
		t.Helper()
		record := &kgo.Record{Key: []byte(podEvent(name, 1).PartitionKey), Value: value}
		testkit.OK(t, others.ProduceSync(t.Context(), record).FirstErr())
	}
	round := func() (number int64) {
		t.Helper()
		for range 2 { // the second look sees that the sink stores nothing meanwhile
			for _, loss := range s.Inspect(t.Context()) {
				if loss.Reason != sinks.Unverified || number != 0 {
					t.Errorf("lost %v", loss)
				}
				number = loss.Round
			}
		}
		return number
	}
	synced := func(name string, version int, round int64) *event.Event {
		e := podEvent(name, version)
		e.Op, e.ID = event.Synced, fmt.Sprintf("uid-%s/%d/sync/%d", name, version, round)
		return e
	}
	stored := func() int { return len(readAll(t, c, "view")) }
	wantStored := func(what string, of int, events ...*event.Event) {
		t.Helper()
		before := stored()
		publishEvents(t, s, events...)
		if got := stored() - before; got != of {
			t.Errorf("%s: %d records are stored, want %d", what, got, of)
		}
	}

	gone := podEvent("gone", 4)
	gone.Op = event.Deleted
	publishEvents(t, s, podEvent("web", 1), podEvent("api", 2), podEvent("db", 3), gone)
	if n := round(); n != 0 {
		t.Fatalf("round %d, though no other has written", n)
	}
	write("web", nil)
	write("api", []byte("{}"))
	publishEvents(t, s, podEvent("db", 5)) // its offset shows the two before it
	first := round()
	if first == 0 {
		t.Fatal("it is not noticed")
	}
	wantStored("in another round", 1, synced("db", 5, 7))
	wantStored("a row that no other has touched", 0, synced("db", 5, first))
	wantStored("a row that was deleted", 1, synced("web", 1, first))
	wantStored("a row that was replaced", 1, synced("api", 2, first))
	wantStored("a row that is there again", 0, synced("web", 1, first), synced("api", 2, first))

	write("db", nil)
	if n := round(); n != 0 {
		t.Errorf("round %d comes at once", n)
	}
	s.CompareNow()
	second := round()
	if second == 0 {
		t.Fatal("what is written while the sink stores nothing is not noticed")
	}
	wantStored("a row that was deleted", 1, synced("web", 1, second), synced("db", 5, second))
	s.CompareNow()
	if n := round(); n != 0 {
		t.Errorf("round %d, and all is there", n)
	}
}
