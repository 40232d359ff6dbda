package kafka_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// fetches answers fetch requests: nil lets the broker do it.
func fetches(c *kfake.Cluster, answer func(*kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.FetchRequest)
		p := answer(asked)
		if p == nil {
			return nil, nil, false
		}
		p.Partition = asked.Topics[0].Partitions[0].Partition
		res := req.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.Partitions = asked.Topics[0].Topic, append(topic.Partitions, *p)
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
}

// readFrom gives the offsets that are asked for from now on.
func readFrom(c *kfake.Cluster) func() []int64 {
	var mu sync.Mutex
	var at []int64
	fetches(c, func(req *kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, req.Topics[0].Partitions[0].FetchOffset)
		return nil
	})
	return func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(at)
	}
}

// nothing is the answer that nothing can be read, for a reason if there is one.
func nothing(why *kerr.Error) *kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	if p.HighWatermark = 1; why != nil {
		p.ErrorCode = why.Code
	}
	return &p
}

// deleteBefore deletes records as retention does.
func deleteBefore(t *testing.T, c *kfake.Cluster, offset int64) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	topic := kmsg.NewDeleteRecordsRequestTopic()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = offset
	topic.Topic, topic.Partitions = podsTopic, append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(t.Context(), newClient(t, c))
	if err != nil || res.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(err, res)
	}
}

// An acknowledgement that can't be verified any more.
func TestUnverifiedAck(t *testing.T) {
	var denied atomic.Bool
	for name, hide := range map[string]func(*testing.T, *kfake.Cluster){
		"since retention has deleted what it names": func(t *testing.T,
			c *kfake.Cluster,
		) {
			deleteBefore(t, c, 5)
		},
		"since the right to read is gone": func(_ *testing.T, c *kfake.Cluster) {
			denied.Store(true)
			fetches(c, func(*kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition {
				if denied.Load() {
					return nothing(kerr.TopicAuthorizationFailed)
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, position, release := heldBatch(t)
			s := resumed(t, c, position)
			release()
			hide(t, c)
			publish(t, s, podEvents("other", 1, 2)...) // as many records as the late batch has
			publish(t, s, podEvents("other", 3, 3)...)
			denied.Store(false)
			got := ids(readAll(t, c, podsTopic))
			got = slices.DeleteFunc(got,
				func(id string) bool { return slices.Contains(wantIDs("web", 1, 5), id) })
			if want := wantIDs("other", 1, 3); !slices.Equal(got, want) {
				t.Errorf("the log holds %v, want %v", got, want)
			}
		})
	}
}

func TestLaggingReplica(t *testing.T) {
	c, position, release := heldBatch(t)
	s := resumed(t, c, position)
	release()
	behind := []*kerr.Error{nil, kerr.OffsetOutOfRange, nil, kerr.OffsetNotAvailable}
	var asked atomic.Int32
	fetches(c, func(*kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition {
		if n := int(asked.Add(1)); n <= len(behind) {
			return nothing(behind[n-1])
		}
		return nil
	})
	first := podEvents("other", 1, 2)
	publish(t, s, first...)
	requireEachOnce(t, c, s, first)
	if n := int(asked.Load()); n <= len(behind) {
		t.Errorf("asked %d times", n)
	}
}

func TestLateBatchInNextPosition(t *testing.T) {
	c, position, release := heldBatch(t)
	var noted []string
	note := func(id string) { noted = append(noted, id) }
	second := openSink(t, c)
	if err := second.ReadBack(t.Context(), position, note); err != nil {
		t.Fatal(err)
	}
	release()
	publish(t, second, podEvents("other", 1, 1)...) // faster than what the late batch holds
	third := openSink(t, c)
	if err := third.ReadBack(t.Context(), second.Position(), note); err != nil {
		t.Fatal(err)
	}
	for _, id := range wantIDs("web", 4, 5) {
		if !slices.Contains(noted, "workloads/"+id) {
			t.Errorf("%s is behind no place, and was not reported: %v", id, noted)
		}
	}
}

func TestConfirmBeforeResume(t *testing.T) {
	c, position, release := heldBatch(t)
	s := resumed(t, c, position, func(c *kafka.Options) {
		c.Confirm = func(context.Context) error { return errUnreachable }
	})
	release()
	for _, n := range []int{2, 1} { // as many records as the other batch has, and fewer
		first := podEvents("other", 1, n)
		s.Publish(t.Context(), first)
		for _, m := range first {
			if sinks.Classify(m.Err) != sinks.Reconnect {
				t.Errorf("%s got %v", m.Event.ID, m.Err)
			}
		}
	}
	requireLog(t, c, wantIDs("web", 1, 5))
}

func TestVerifyReadsOneBatch(t *testing.T) {
	c := newCluster(t)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	s := resumed(t, c, dying.Position())
	publish(t, openSink(t, c), podEvents("else", 1, 20)...) // somebody else's, behind the place
	at := readFrom(c)
	publish(t, s, podEvents("web", 4, 4)...)
	publish(t, s, podEvents("web", 5, 5)...)
	if got := at(); !slices.Equal(got, []int64{23}) {
		t.Errorf("read from %v, want once from the place of the batch, 23", got)
	}
}

func TestLateSearchContinues(t *testing.T) {
	c := newCluster(t)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	s := resumed(t, c, dying.Position())
	other := openSink(t, c)
	publish(t, other, podEvents("else", 1, 20)...)
	produceFault(c, kerr.OutOfOrderSequenceNumber, 3)
	at := readFrom(c)
	publish(t, s, podEvents("web", 4, 4)...)
	if got, want := at(), []int64{3, 23}; !slices.Equal(got, want) {
		t.Errorf("read from %v, want %v: once through, and then the place of the batch", got, want)
	}
}
