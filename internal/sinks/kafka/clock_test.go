package kafka_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// A broker refuses records whose time is too far from its own.
func TestWrongClock(t *testing.T) {
	t.Run("the events wait until the clock is right, and have the time of then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var virtual kfake.VirtualNetwork
			c := newCluster(t, kfake.ListenFn(virtual.Listen))
			s := openSink(t, c, func(c *kafka.Options) {
				c.Connection.Dial, c.Compression = virtual.DialContext, "lz4"
			})
			publish(t, s, podEvents("web", 1, 1)...)
			fault := produceFault(c, kerr.InvalidTimestamp, -1)
			messages := podEvents("web", 2, 60)
			var wg sync.WaitGroup
			wg.Go(func() { s.Publish(t.Context(), messages) })
			time.Sleep(time.Hour)
			if why := s.Blocked(); why == nil || !strings.Contains(why.Error(), podsTopic+"/0") ||
				!strings.Contains(why.Error(), "the broker refuses this machine's clock") {
				t.Errorf("blocked for %v", why)
			}
			fault.Remove()
			right := time.Now()
			wg.Wait()
			requireStored(t, messages)
			publish(t, s, podEvents("web", 61, 61)...)
			if why := s.Blocked(); why != nil {
				t.Errorf("still blocked: %v", why)
			}
			records := readAll(t, c, podsTopic, kgo.Dialer(virtual.DialContext))
			requireIDs(t, records, wantIDs("web", 1, 61))
			for _, r := range records[1:] {
				if late := right.Sub(r.Timestamp); late > 3*time.Second || late < -3*time.Second {
					t.Fatalf("record %d has the time %v, sent at %v", r.Offset, r.Timestamp, right)
				}
				if r.ProducerEpoch != records[0].ProducerEpoch || r.ProducerID != records[0].ProducerID {
					t.Fatalf("record %d is of another producer", r.Offset)
				}
			}
			_ = s.Close()
			c.Close()
		})
	})
	t.Run("a batch that was stored before is recognized", func(t *testing.T) {
		c, n := newCluster(t), new(network)
		s := openSink(t, c, n.use)
		publish(t, s, podEvents("web", 1, 2)...)
		n.lost = func() { produceFault(c, kerr.InvalidTimestamp, 2) }
		n.loseAnswers.Store(1)
		publish(t, s, podEvents("web", 3, 6)...)
		publish(t, s, podEvents("web", 7, 8)...)
		requireLog(t, c, wantIDs("web", 1, 8))
	})
	t.Run("an event's own time is refused", func(t *testing.T) {
		c := newCluster(t)
		s := openSink(t, c, func(c *kafka.Options) { c.Timestamps = kafka.EventTime })
		produceFault(c, kerr.InvalidTimestamp, 1)
		messages := podEvents("web", 1, 1)
		s.Publish(t.Context(), messages)
		if sinks.Classify(messages[0].Err) != sinks.Refused {
			t.Errorf("got %v", messages[0].Err)
		}
	})
}
