package kafka_test

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

func TestReadBackOfUnknownTopic(t *testing.T) {
	c := newCluster(t)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	position := dying.Position()
	publish(t, dying, podEvents("web", 4, 5)...)
	last := readAll(t, c, podsTopic)[4]

	var unknown atomic.Bool
	unknown.Store(true)
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.MetadataRequest)
		if !unknown.Load() || len(asked.Topics) == 0 {
			return nil, nil, false
		}
		return unknownTopic(t, c, asked), nil, true
	})
	s := openSink(t, c)
	found := recallFrom(t, s, position)
	if got := s.Position(); !slices.Equal(kafka.OffsetsOf(got, podsTopic), kafka.OffsetsOf(position,
		podsTopic)) {
		t.Errorf("meanwhile the position is %s, and was %s", got, position)
	}
	unknown.Store(false)
	if _, err := s.Lane(t.Context(), podEvent("web", 4)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"workloads/uid-web/4", "workloads/uid-web/5"}; !slices.Equal(*found, want) {
		t.Errorf("read back %v, want %v", *found, want)
	}
	publish(t, s, podEvents("web", 6, 6)...)
	if r := readAll(t, c, podsTopic)[5]; r.ProducerID != last.ProducerID {
		t.Errorf("the lane resumed as producer %d, want %d", r.ProducerID, last.ProducerID)
	}
}

// unknownTopic is a broker's answer about itself and a topic that it does not know.
func unknownTopic(t *testing.T, c *kfake.Cluster, asked *kmsg.MetadataRequest) kmsg.Response {
	host, port, err := net.SplitHostPort(c.ListenAddrs()[0])
	if err != nil {
		t.Error(err)
	}
	number, _ := strconv.Atoi(port)
	res := asked.ResponseKind().(*kmsg.MetadataResponse)
	b := kmsg.NewMetadataResponseBroker()
	b.Host, b.Port = host, int32(number)
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic, topic.ErrorCode = asked.Topics[0].Topic, kerr.UnknownTopicOrPartition.Code
	res.Brokers, res.Topics = append(res.Brokers, b), append(res.Topics, topic)
	return res
}

func TestRetentionWhileReading(t *testing.T) {
	c := newCluster(t)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	position := dying.Position()
	for n := 4; n <= 9; n++ {
		publish(t, dying, podEvents("web", n, n)...)
	}
	s := openSink(t, c)
	once := true
	fetches(c, func(*kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition {
		if !once {
			return nil
		}
		once = false
		done := make(chan struct{})
		go func() { defer close(done); deleteBefore(t, c, 5) }()
		c.SleepControl(func() { <-done })
		return nothing(kerr.OffsetOutOfRange)
	})
	found := recallFrom(t, s, position)
	if want := []string{
		"workloads/uid-web/6", "workloads/uid-web/7", "workloads/uid-web/8",
		"workloads/uid-web/9",
	}; !slices.Equal(*found, want) {
		t.Errorf("read back %v, want %v", *found, want)
	}
	before := readAll(t, c, podsTopic)[0].ProducerID
	publish(t, s, podEvents("web", 10, 10)...)
	if r := readAll(t, c, podsTopic)[4]; r.ProducerID == before {
		t.Error("the lane continues as a producer of which it has not seen everything")
	}
}

func TestReadBackWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var virtual kfake.VirtualNetwork
		c := newCluster(t, kfake.ListenFn(virtual.Listen), kfake.SeedTopics(3, podsTopic))
		var said strings.Builder
		in := func(c *kafka.Options) { c.Connection.Dial = virtual.DialContext }
		dying := openSink(t, c, in)
		var messages []*sinks.Message
		for i := range 12 {
			messages = append(messages, podEvents(fmt.Sprint("p", i), 1, 2)...)
		}
		publishEach(t, dying, messages[0])
		position := dying.Position()
		publishEach(t, dying, messages[1:]...)
		stored := ids(readAll(t, c, podsTopic, kgo.Dialer(virtual.DialContext)))

		var away atomic.Bool
		away.Store(true)
		c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			asked := req.(*kmsg.ListOffsetsRequest)
			if !away.Load() || asked.Topics[0].Partitions[0].Partition != 1 {
				return nil, nil, false
			}
			res := endsAt(asked, -1).(*kmsg.ListOffsetsResponse)
			res.Topics[0].Partitions[0].ErrorCode = kerr.LeaderNotAvailable.Code
			return res, nil, true
		})
		s := openSink(t, c, in, logTo(&said))
		began := time.Now()
		found := recallFrom(t, s, position)
		if waited := time.Since(began); waited > 20*time.Second {
			t.Errorf("the start was held up for %v", waited)
		}
		if !strings.Contains(said.String(), podsTopic+"/1") {
			t.Errorf("nothing is said of the partition: %s", said.String())
		}
		again := slices.Clone(messages[1:])
		again = slices.DeleteFunc(again,
			func(m *sinks.Message) bool { return slices.Contains(*found, "workloads/"+m.Event.ID) })
		if len(again) == 0 || len(again) == len(messages)-1 {
			t.Fatalf("%d of %d are left to be sent again", len(again), len(messages)-1)
		}
		away.Store(false)
		publishEach(t, s, again...)
		if got := ids(readAll(t, c, podsTopic,
			kgo.Dialer(virtual.DialContext))); len(got) != len(stored) {
			t.Errorf("the log held %d records, and holds %d: %v", len(stored), len(got), got)
		}
		_, _ = s.Close(), dying.Close()
		c.Close()
	})
}

// publishEach sends messages of any lanes.
func publishEach(t *testing.T, s *kafka.Sink, messages ...*sinks.Message) {
	t.Helper()
	for _, m := range messages {
		publish(t, s, m)
	}
}

func TestNewPartitionByEventTime(t *testing.T) {
	c := newCluster(t)
	ofEvents := func(c *kafka.Options) { c.Timestamps = kafka.EventTime }
	dying := openSink(t, c, ofEvents)
	position := dying.Position()
	publish(t, dying, podEvents("web", 1, 5)...) // in 2026-11: long ago, or to come
	s := openSink(t, c, ofEvents)
	found := recallFrom(t, s, position)
	if _, err := s.Lane(t.Context(), podEvent("web", 1)); err != nil {
		t.Fatal(err)
	}
	if len(*found) != 5 {
		t.Errorf("found %v", *found)
	}
}

func TestLeaderEpoch(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(2))
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	position := dying.Position()
	for node := range int32(2) { // each has a later epoch
		if err := c.MoveTopicPartition(podsTopic, 0, node); err != nil {
			t.Fatal(err)
		}
	}
	var least atomic.Int32
	least.Store(math.MaxInt32)
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		least.Store(min(least.Load(),
			req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].CurrentLeaderEpoch))
		return nil, nil, false
	})
	recallFrom(t, openSink(t, c), position)
	if got := least.Load(); got <= 0 || got == math.MaxInt32 {
		t.Errorf("the leader was asked as one of epoch %d", got)
	}
}

func TestShortLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var virtual kfake.VirtualNetwork
		c := newCluster(t, kfake.ListenFn(virtual.Listen))
		in := func(c *kafka.Options) { c.Connection.Dial = virtual.DialContext }
		dying := openSink(t, c, in)
		publish(t, dying, podEvents("web", 1, 3)...)
		position := dying.Position()
		publish(t, dying, podEvents("web", 4, 5)...)
		var lost atomic.Bool
		lost.Store(true)
		fetches(c, func(*kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition {
			if lost.Load() {
				return nothing(kerr.OffsetOutOfRange)
			}
			return nil
		})
		s := openSink(t, c, in)
		recallFrom(t, s, position)
		began := time.Now()
		publish(t, s, podEvents("web", 4, 5)...)
		if waited := time.Since(began); waited > 20*time.Second {
			t.Errorf("the lane's first batch waited for %v", waited)
		}
		lost.Store(false)
		got := ids(readAll(t, c, podsTopic, kgo.Dialer(virtual.DialContext)))
		if want := append(wantIDs("web", 1, 5), wantIDs("web", 4, 5)...); !slices.Equal(got, want) {
			t.Errorf("the log holds %v, want %v", got, want)
		}
		_, _ = s.Close(), dying.Close()
		c.Close()
	})
}
