package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// heldBatch is a process that dies while its last batch, pods 4 and 5, lies in the broker's queue.
func heldBatch(t *testing.T) (c *kfake.Cluster, position []byte, release func()) {
	t.Helper()
	c = newCluster(t, kfake.SleepOutOfOrder())
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	position = dying.Position()

	return c, position, holdNext(t, c, func(ctx context.Context) {
		dying.Publish(ctx,
			podEvents("web", 4, 5))
	})
}

// holdNext has the next batch lie in the broker's queue until it is released. Whoever sends it has
// given up before holdNext returns.
func holdNext(t *testing.T, c *kfake.Cluster, send func(context.Context)) (release func()) {
	t.Helper()
	held, released, applied := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := true
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if first {
			first = false
			close(held)
			c.SleepControl(func() { <-released })
			defer close(applied)
		}
		return nil, nil, false
	})
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		send(ctx)
	}()
	<-held
	giveUp()
	<-gone
	return func() {
		close(released)
		<-applied
		ask(t, c)
	}
}

// ask has the broker answer something else: it carries out one request after the other.
func ask(t *testing.T, c *kfake.Cluster) {
	t.Helper()
	for range 3 {
		topicsOf(t, c)
	}
}

// resumed is the process after that: it recalls, and has found nothing behind the position.
func resumed(
	t *testing.T, c *kfake.Cluster, position []byte, change ...func(*kafka.Options),
) *kafka.Sink {
	t.Helper()
	s := openSink(t, c, change...)
	if found := recallFrom(t, s, position); len(*found) > 0 {
		t.Errorf("recalled %v", *found)
	}
	return s
}

func TestLateBatch(t *testing.T) {
	for name, first := range map[string][]*sinks.Message{
		"when the same is sent": podEvents("web", 4, 5),
		"when less is sent":     podEvents("web", 4, 4),
		"when more is sent":     podEvents("web", 4, 6),
		"when as much is sent, of which some is other": append(podEvents("other", 1, 1),
			podEvents("web", 4, 4)...),
		"when nothing of it is sent": podEvents("other", 1, 2),
	} {
		t.Run(name+", stored before", func(t *testing.T) {
			c, position, release := heldBatch(t)
			s := resumed(t, c, position)
			release()
			publish(t, s, first...)
			requireEachOnce(t, c, s, first)
		})
		t.Run(name+", stored later", func(t *testing.T) {
			c, position, release := heldBatch(t)
			s := resumed(t, c, position)
			publish(t, s, first...)
			before := ids(readAll(t, c, podsTopic))
			release()
			if after := ids(readAll(t, c, podsTopic)); !slices.Equal(after, before) {
				t.Errorf("the log held %v, and now holds %v", before, after)
			}
		})
	}
}

// The place of a partition that was not used is passed on.
func TestUnusedPlace(t *testing.T) {
	c, position, release := heldBatch(t)
	for range 2 {
		unused := resumed(t, c, position)
		position = unused.Position()
	}
	s := resumed(t, c, position)
	release()
	again := podEvents("web", 4, 5)
	publish(t, s, again...)
	requireEachOnce(t, c, s, again)
}

func TestDeposedLeader(t *testing.T) {
	c := newCluster(t)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	position := dying.Position()
	publish(t, dying, podEvents("web", 4, 5)...)

	stale := 3
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		asked := req.(*kmsg.ListOffsetsRequest)
		if asked.Topics[0].Partitions[0].Timestamp != -1 || stale == 0 {
			c.KeepControl()
			return nil, nil, false
		}
		c.KeepControl()
		stale--
		return endsAt(asked, 1), nil, true
	})
	var found []string
	if err := openSink(t, c).ReadBack(t.Context(), position,
		func(id string) { found = append(found, id) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"workloads/uid-web/4", "workloads/uid-web/5"}; !slices.Equal(found, want) ||
		stale > 0 {
		t.Errorf("recalled %v, want %v; %d stale answers were not asked for", found, want, stale)
	}
}

// endsAt is an answer that names an end of the log.
func endsAt(req *kmsg.ListOffsetsRequest, offset int64) kmsg.Response {
	res := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	p := kmsg.NewListOffsetsResponseTopicPartition()
	p.Partition, p.Offset = req.Topics[0].Partitions[0].Partition, offset
	topic := kmsg.NewListOffsetsResponseTopic()
	topic.Topic, topic.Partitions = req.Topics[0].Topic, append(topic.Partitions, p)
	res.Topics = append(res.Topics, topic)
	return res
}

// requireEachOnce wants every message in the log once, the pod's in order, and the lane to
// continue.
func requireEachOnce(t *testing.T, c *kfake.Cluster, s *kafka.Sink, messages []*sinks.Message) {
	t.Helper()
	publish(t, s, podEvents("next", 1, 2)...)
	want := append(wantIDs("web", 1, 5), wantIDs("next", 1, 2)...)
	for _, m := range messages {
		if !slices.Contains(want, m.Event.ID) {
			want = append(want, m.Event.ID)
		}
	}
	got := ids(readAll(t, c, podsTopic))
	web := slices.DeleteFunc(slices.Clone(got), func(id string) bool {
		return !strings.HasPrefix(id,
			"uid-web/")
	})
	sorted := slices.Sorted(slices.Values(got))
	slices.Sort(want)
	if !slices.Equal(sorted, want) || !slices.IsSorted(web) {
		t.Errorf("the log holds %v, want each of %v once", got, want)
	}
}

func TestRemembers(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(3, podsTopic))
	s := openSink(t, c)
	about := podEvent("", 0)
	ours := func(found sinks.Trace) bool {
		return strings.HasPrefix(found.MessageID, about.Informer+"/") &&
			strings.HasPrefix(found.PartitionKey, "pods/shop/")
	}
	look := func(want bool, when string) {
		t.Helper()
		if got, err := s.FindEarlierRun(t.Context(), about, ours); err != nil || got != want {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	look(false, "before anything was sent")
	other := podEvents("web", 1, 3)
	for _, m := range other {
		m.Event.Informer = "another"
	}
	publish(t, s, other...)
	look(false, "with another informer's")
	publish(t, s, podEvents("web", 4, 5)...)
	look(true, "with ours")
	about.Resource = "jobs"
	look(false, "of a topic that is not there")
}
