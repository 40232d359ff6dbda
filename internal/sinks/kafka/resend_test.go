package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// requireLog fails unless the topic holds exactly these records in this order.
func requireLog(t testing.TB, c *kfake.Cluster, want []string) {
	t.Helper()
	requireIDs(t, readAll(t, c, podsTopic), want)
}

func requireIDs(t testing.TB, records []*kgo.Record, want []string) {
	t.Helper()
	if got := ids(records); !slices.Equal(got, want) {
		t.Errorf("the log holds %v, want %v", got, want)
	}
}

func TestDelayedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var virtual kfake.VirtualNetwork
		c := newCluster(t, kfake.ListenFn(virtual.Listen), kfake.SleepOutOfOrder())
		s := openSink(t, c, func(c *kafka.Options) { c.Connection.Dial = virtual.DialContext })

		// The first attempt sleeps inside the broker until everything else has been stored.
		release, applied, first := make(chan struct{}), make(chan struct{}), true
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if first {
				first = false
				c.SleepControl(func() { <-release })
				close(applied)
			}
			return nil, nil, false
		})
		began := time.Now()
		publish(t, s, podEvents("web", 1, 3)...)
		if waited := time.Since(began); waited < 2*time.Second {
			t.Fatalf("the first attempt was answered after %v", waited)
		}
		publish(t, s, podEvents("web", 4, 6)...)
		close(release)
		<-applied
		synctest.Wait()
		publish(t, s, podEvents("web", 7, 7)...)

		got := ids(readAll(t, c, podsTopic, kgo.Dialer(virtual.DialContext)))
		if want := wantIDs("web", 1, 7); !slices.Equal(got, want) {
			t.Errorf("the log holds %v, want %v", got, want)
		}
		_ = s.Close()
		c.Close()
	})
}

func TestErrorAfterAppend(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(err.Message, func(t *testing.T) {
			c := newCluster(t)
			s := openSink(t, c)
			fault := produceFault(c, err, 3)
			publish(t, s, podEvents("web", 1, 5)...)
			publish(t, s, podEvents("web", 6, 9)...)
			if fault.Hits() != 3 {
				t.Errorf("the broker answered %d errors", fault.Hits())
			}
			requireLog(t, c, wantIDs("web", 1, 9))
		})
	}
}

func TestErrorBeforeAppend(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition,
		kerr.UnknownTopicOrPartition,
		kerr.CorruptMessage, kerr.UnknownServerError, kerr.KafkaStorageError,
	} {
		t.Run(err.Message, func(t *testing.T) {
			c := newCluster(t)
			s := openSink(t, c)
			produceFault(c, err, 2)
			publish(t, s, podEvents("web", 1, 5)...)
			requireLog(t, c, wantIDs("web", 1, 5))
		})
	}
}

func TestLostAnswer(t *testing.T) {
	c, n := newCluster(t), new(network)
	s := openSink(t, c, n.use)
	n.loseAnswers.Store(2)
	publish(t, s, podEvents("web", 1, 5)...)
	publish(t, s, podEvents("web", 6, 8)...)
	if left := n.loseAnswers.Load(); left >= 0 {
		t.Errorf("%d answers were still to be lost", left)
	}
	requireLog(t, c, wantIDs("web", 1, 8))
}

func TestMovedLeader(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3))
	s := openSink(t, c)
	for n := 1; n <= 30; n++ {
		if err := c.MoveTopicPartition(podsTopic, 0, int32(n%3)); err != nil {
			t.Fatal(err)
		}
		publish(t, s, podEvents("web", n, n)...)
	}
	requireLog(t, c, wantIDs("web", 1, 30))
}

func TestUnavailableBroker(t *testing.T) {
	c, n, registry := newCluster(t), new(network), prometheus.NewRegistry()
	s := openSink(t, c, n.use, func(c *kafka.Options) { c.Registry = registry })
	publish(t, s, podEvents("web", 1, 5)...)
	n.setDown(true)
	var wg sync.WaitGroup
	second := podEvents("web", 6, 10)
	wg.Go(func() { s.Publish(t.Context(), second) })
	testkit.Eventually(t, "the lane sends again", func() bool {
		return testkit.Metric(t, registry, "bridge_kafka_lanes_resending") == 1
	})
	time.Sleep(200 * time.Millisecond)
	if !errors.Is(second[0].Err, errUnset) {
		t.Fatalf("Publish has answered %v while the broker was unavailable", second[0].Err)
	}
	n.setDown(false)
	wg.Wait()
	requireStored(t, second)
	if got := testkit.Metric(t, registry, "bridge_kafka_lanes_resending"); got != 0 {
		t.Errorf("%v lanes are still said to be resending", got)
	}
	requireLog(t, c, wantIDs("web", 1, 10))
}

// The last answer of a broker that stops in order is that no partition has a leader. Why no broker
// can be reached says more.
func TestUnreachableWithoutLeader(t *testing.T) {
	c, n, registry := newCluster(t), new(network), prometheus.NewRegistry()
	s := openSink(t, c, n.use, func(c *kafka.Options) { c.Registry = registry })
	publish(t, s, podEvents("web", 1, 1)...)
	broker, topic, partition := kmsg.NewMetadataResponseBroker(), kmsg.NewMetadataResponseTopic(), kmsg.NewMetadataResponseTopicPartition()
	address := netip.MustParseAddrPort(c.ListenAddrs()[0])
	broker.Host, broker.Port = address.Addr().String(), int32(address.Port())
	partition.ErrorCode, partition.Leader = kerr.LeaderNotAvailable.Code, -1
	topic.Topic, topic.TopicID = new(podsTopic), c.TopicInfo(podsTopic).TopicID
	topic.Partitions = append(topic.Partitions, partition)
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := req.ResponseKind().(*kmsg.MetadataResponse)
		response.Brokers, response.Topics = append(response.Brokers, broker), append(response.Topics, topic)
		return response, nil, true
	})
	produceFault(c, kerr.NotLeaderForPartition, 1)
	second, done := podEvents("web", 2, 2), make(chan struct{})
	go func() {
		defer close(done)
		s.Publish(t.Context(), second)
	}()
	testkit.Eventually(t, "the partition has no leader", func() bool {
		return testkit.Metric(t, registry, "bridge_kafka_resends_total no leader") > 0
	})
	n.setDown(true)
	<-done
	if err := second[0].Err; !errors.Is(err, errUnreachable) || strings.Contains(err.Error(), "no leader") {
		t.Errorf("no broker can be reached, and the sink says %v", err)
	}
}

func TestPublishContext(t *testing.T) {
	for _, ambiguous := range []string{"nothing was stored", "the batch was stored and its " +
		"answer lost"} {
		t.Run(ambiguous, func(t *testing.T) {
			c, n := newCluster(t), new(network)
			s := openSink(t, c, n.use)
			publish(t, s, podEvents("web", 1, 2)...)
			if ambiguous == "nothing was stored" {
				n.setDown(true)
			} else {
				n.loseAnswers.Store(1)
				n.lost = func() { n.setDown(true) }
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			torn := podEvents("web", 3, 6)
			s.Publish(ctx, torn)
			for _, m := range torn {
				if sinks.Classify(m.Err) != sinks.Stopped ||
					!errors.Is(m.Err, context.DeadlineExceeded) {
					t.Fatalf("%s got %v", m.Event.ID, m.Err)
				}
			}
			n.setDown(false)
			publish(t, s, podEvents("web", 3, 4)...) // the same messages in other batches
			publish(t, s, podEvents("web", 5, 9)...)
			requireLog(t, c, wantIDs("web", 1, 9))
		})
	}
}

func TestForgottenProducer(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber,
		kerr.InvalidProducerEpoch, kerr.ProducerFenced,
	} {
		t.Run(err.Message, func(t *testing.T) {
			for _, before := range []string{
				"refused at once", "stored, but the answer was lost",
				"not stored, but that was not known",
			} {
				t.Run(before, func(t *testing.T) {
					c, n := newCluster(t), new(network)
					s := openSink(t, c, n.use)
					publish(t, s, podEvents("web", 1, 5)...)
					switch before {
					case "refused at once":
						produceFault(c, err, 1)
					case "stored, but the answer was lost":
						n.lost = func() { produceFault(c, err, 1) }
						n.loseAnswers.Store(1)
					default:
						produceFault(c, kerr.NotEnoughReplicas, 1)
						produceFault(c, err, 1)
					}
					publish(t, s, podEvents("web", 6, 8)...)
					publish(t, s, podEvents("web", 9, 12)...)
					requireLog(t, c, wantIDs("web", 1, 12))
					if last := readAll(t, c, podsTopic)[11]; last.ProducerEpoch != 1 {
						t.Errorf("the lane is in epoch %d after one recovery", last.ProducerEpoch)
					}
				})
			}
		})
	}
}

func TestForgottenProducerAgain(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c)
	publish(t, s, podEvents("web", 1, 2)...)
	produceFault(c, kerr.UnknownProducerID, 3)
	publish(t, s, podEvents("web", 3, 5)...)
	requireLog(t, c, wantIDs("web", 1, 5))
	records := readAll(t, c, podsTopic)
	if records[4].ProducerID == records[0].ProducerID {
		t.Errorf("the producer id is still %d", records[0].ProducerID)
	}
}

func TestRecreatedTopic(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c)
	publish(t, s, podEvents("web", 1, 5)...)
	if err := c.DeleteTopic(podsTopic); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(podsTopic, 1, nil); err != nil {
		t.Fatal(err)
	}
	publish(t, s, podEvents("web", 6, 9)...)
	publish(t, s, podEvents("web", 10, 10)...)
	requireLog(t, c, wantIDs("web", 6, 10))
	if got := s.Inspect(t.Context()); len(got) != 1 {
		t.Errorf("the loss of acknowledged events was reported as %v", got)
	}
}

func TestUnreadableTail(t *testing.T) {
	c, n := newCluster(t), new(network)
	s := openSink(t, c, n.use)
	publish(t, s, podEvents("web", 1, 2)...)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: 1})
	n.lost = func() { produceFault(c, kerr.UnknownProducerID, 1) }
	n.loseAnswers.Store(1)
	publish(t, s, podEvents("web", 3, 4)...)
	requireLog(t, c, append(wantIDs("web", 1, 4), wantIDs("web", 3, 4)...))
}

func TestManyLanesUnderFaults(t *testing.T) {
	const pods, versions = 24, 60
	c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, podsTopic))
	n := new(network)
	s := openSink(t, c, n.use,
		func(c *kafka.Options) {
			c.Compression, c.Connection.Timeout = "lz4", 500*time.Millisecond
		})

	lanes := make(map[string][]*sinks.Message)
	for v := 1; v <= versions; v++ {
		for p := range pods {
			m := &sinks.Message{Event: podEvent(fmt.Sprint("pod-", p), v)}
			lane, err := s.Lane(t.Context(), m.Event)
			if err != nil {
				t.Fatal(err)
			}
			lanes[lane] = append(lanes[lane], m)
		}
	}
	var done atomic.Bool
	var chaos, work sync.WaitGroup
	chaos.Go(func() {
		for i := 0; i < 120 && !done.Load(); i++ {
			var fault *kfake.FaultHandle
			switch i % 6 {
			case 0:
				c.ShufflePartitionLeaders()
			case 1:
				n.loseAnswers.Store(2)
			case 2:
				fault = produceFault(c, kerr.NotEnoughReplicasAfterAppend, 2)
			case 3:
				n.setDown(true)
			case 4:
				n.setDown(false)
			case 5:
				fault = produceFault(c, kerr.UnknownProducerID, 1)
			}
			time.Sleep(10 * time.Millisecond)
			if fault != nil {
				// faults must not pile up faster than the lanes, which back off, meet them
				fault.Remove()
			}
		}
		n.loseAnswers.Store(0)
		n.setDown(false)
	})
	for _, messages := range lanes {
		work.Go(func() {
			for batch := range slices.Chunk(messages, 7) {
				s.Publish(t.Context(), batch)
				requireStored(t, batch)
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	work.Wait()
	done.Store(true)
	chaos.Wait()

	byPod := make(map[string][]string)
	for _, r := range readAll(t, c, podsTopic) {
		id, _ := header(r, "ce_id")
		byPod[string(r.Key)] = append(byPod[string(r.Key)], id)
	}
	for p := range pods {
		pod := fmt.Sprint("pod-", p)
		if got, want := byPod["pods/shop/"+pod], wantIDs(pod, 1, versions); !slices.Equal(got,
			want) {
			t.Errorf("%s: got %v", pod, got)
		}
	}
}
