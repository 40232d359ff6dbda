package kafka_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestPublishOrder(t *testing.T) {
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			c := newCluster(t)
			s := openSink(t, c, func(c *kafka.Options) {
				c.Encoding = encoding
				c.Timestamps = kafka.EventTime
			})
			publish(t, s, podEvents("web", 1, 50)...)
			publish(t, s, podEvents("web", 51, 60)...)

			records := readAll(t, c, podsTopic)
			if len(records) != 60 {
				t.Fatalf("%d records, want 60", len(records))
			}
			for i, r := range records {
				want := podEvent("web", i+1)
				if string(r.Key) != want.PartitionKey || !r.Timestamp.Equal(want.Time) {
					t.Fatalf("record %d: key %q at %v, want %q at %v", i, r.Key, r.Timestamp,
						want.PartitionKey, want.Time)
				}
				requireSameEvent(t, cloudEvent(t, r), want)
			}
		})
	}
}

func TestStructuredMode(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c, func(c *kafka.Options) { c.Encoding = sinks.Structured })
	publish(t, s, podEvents("web", 1, 1)...)
	r := readAll(t, c, podsTopic)[0]
	if len(r.Headers) != 2 || r.Headers[1].Key != "informer" ||
		r.Headers[0].Key != "content-type" ||
		string(r.Headers[0].Value) != "application/cloudevents+json; charset=UTF-8" {
		t.Errorf("headers are %v", r.Headers)
	}
}

// A flat record is the value: a dead letter and an event about an informer too.
func TestFlatRecords(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, podsTopic, "dead"))
	s := openSink(t, c, func(c *kafka.Options) { c.Encoding, c.DeadLetterTopic = sinks.Flat, "dead" })
	publish(t, s, podEvents("web", 1, 1)...)
	publishEvents(t, s, listEnd(9))
	testkit.OK(t, s.DeadLetter(t.Context(), podEvent("web", 2), errUnreachable, 3))
	for _, r := range append(readAll(t, c, podsTopic), readAll(t, c, "dead")...) {
		if mediaType, _ := header(r, "content-type"); mediaType != "application/vnd.kubebridge.flat+json; charset=UTF-8" {
			t.Errorf("content-type is %q", mediaType)
		}
		e, err := new(event.Message).ReadDocument(r.Value).Decode()
		testkit.OK(t, err)
		if r.Topic == "dead" && !slices.ContainsFunc(e.Extensions, func(a event.Attribute) bool {
			return a == event.Attribute{Name: "deadletterattempts", Value: "3"}
		}) {
			t.Errorf("the dead letter is %s", r.Value)
		}
	}
}

func TestContentType(t *testing.T) {
	c := newCluster(t)
	publish(t, openSink(t, c), podEvents("web", 1, 1)...)
	r := readAll(t, c, podsTopic)[0]
	if got, _ := header(r, "content-type"); got != "application/json" {
		t.Errorf("content-type is %q", got)
	}
	if _, ok := header(r, "ce_datacontenttype"); ok {
		t.Error("there is a ce_datacontenttype header")
	}
}

func TestEventWithoutPayload(t *testing.T) {
	c := newCluster(t)
	e := podEvent("web", 1)
	e.Data = nil
	about := podEvent("gap", 1)
	about.Data, about.CompactionKey = nil, "informers/workloads/gap"
	publish(t, openSink(t, c), &sinks.Message{Event: e}, &sinks.Message{Event: about})
	r := readAll(t, c, podsTopic)
	if r[0].Value == nil || len(r[0].Value) > 0 {
		t.Errorf("of an object it is %q: a null would delete the key where the topic is compacted", r[0].Value)
	}
	requireSameEvent(t, cloudEvent(t, r[0]), e)
	if r[1].Value != nil {
		t.Errorf("about an informer it is %q, which stops an engine", r[1].Value)
	}
}

func TestRecordTime(t *testing.T) {
	c := newCluster(t)
	before := time.Now().Add(-time.Second)
	publish(t, openSink(t, c), podEvents("web", 1, 1)...)
	if at := readAll(t, c, podsTopic)[0].Timestamp; at.Before(before) ||
		at.After(time.Now().Add(time.Second)) {
		t.Errorf("the record's time is %v", at)
	}
}

func TestCompression(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			c := newCluster(t)
			s := openSink(t, c, func(c *kafka.Options) { c.Compression = codec })
			messages := podEvents("web", 1, 300)
			for _, m := range messages {
				m.Event.Data = append(m.Event.Data, bytes.Repeat([]byte(" "), 2000)...)
			}
			publish(t, s, messages...)
			records := readAll(t, c, podsTopic)
			if got := ids(records); !slices.Equal(got, wantIDs("web", 1, 300)) {
				t.Errorf("ids are %v", got)
			}
			if !bytes.Equal(records[299].Value, messages[299].Event.Data) {
				t.Error("the payload is another")
			}
			if size := c.PartitionInfo(podsTopic, 0).NumBytes; codec != "none" &&
				size > 300*2000/4 {
				t.Errorf("the log takes %d bytes", size)
			}
		})
	}
}

func TestLane(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(12, podsTopic))
	s := openSink(t, c)
	for n := range 50 {
		e := podEvent(fmt.Sprint("pod-", n), 1)
		lane, err := s.Lane(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s/%d", podsTopic, kafka.PartitionOf(e.PartitionKey,
			12)); lane != want {
			t.Errorf("lane is %q, want %q", lane, want)
		}
		publish(t, s, &sinks.Message{Event: e})
	}
	for _, r := range readAll(t, c, podsTopic) {
		if want := kafka.PartitionOf(string(r.Key), 12); int(r.Partition) != want {
			t.Errorf("key %q lies in partition %d, want %d", r.Key, r.Partition, want)
		}
	}
}

func TestTombstone(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c, func(c *kafka.Options) { c.Tombstones = true })
	messages := podEvents("web", 1, 3)
	messages[1].Event.Op = event.Deleted
	publish(t, s, messages...)
	records := readAll(t, c, podsTopic)
	if got, want := ids(records), []string{
		"uid-web/1", "uid-web/2", "-",
		"uid-web/3",
	}; !slices.Equal(got, want) {
		t.Fatalf("ids are %v, want %v", got, want)
	}
	if r := records[2]; r.Value != nil || len(r.Headers) != 0 || string(r.Key) != "pods/shop/web" {
		t.Errorf("the tombstone has key %q, value %q, headers %v", r.Key, r.Value, r.Headers)
	}
	publish(t, s, podEvents("web", 4, 4)...) // the sequence goes by records and not by messages
}

func TestBatchSplit(t *testing.T) {
	const limit = 4000
	c := newCluster(t,
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": fmt.Sprint(limit)}))
	registry := prometheus.NewRegistry()
	s := openSink(t, c, func(c *kafka.Options) {
		c.Tombstones, c.MaxBatchBytes = true, limit
		c.Registry = registry
	})
	messages := podEvents("web", 1, 40)
	for _, m := range messages {
		m.Event.Op = event.Deleted
	}
	publish(t, s, messages...)
	records := readAll(t, c, podsTopic)
	if len(records) != 80 {
		t.Fatalf("%d records, want 80", len(records))
	}
	for i := 0; i < len(records); i += 2 {
		if ids(records[i : i+2])[1] != "-" {
			t.Fatalf("record %d is no tombstone", i+1)
		}
	}
	if n := testkit.Metric(t, registry, "bridge_kafka_batches_total stored"); n < 5 {
		t.Errorf("%v batches for 80 records of 600 bytes below a limit of %d", n, limit)
	}
	if n := testkit.Metric(t, registry, "bridge_kafka_batches_total refused"); n != 0 {
		t.Errorf("the broker had to refuse %v batches", n)
	}
}

func TestOversizeRecord(t *testing.T) {
	for _, why := range []string{
		"the sink knows the broker's limit",
		"the broker's limit is below what the sink knows",
	} {
		t.Run(why, func(t *testing.T) {
			c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}))
			if strings.HasPrefix(why, "the broker") {
				hideConfigs(c)
			}
			s := openSink(t, c)
			messages := podEvents("web", 1, 100)
			big := messages[41]
			big.Event.Data = []byte(`"` + strings.Repeat("x", 30000) + `"`)
			s.Publish(t.Context(), messages)
			for _, m := range messages[41:] { // they wait for a smaller form of the first
				if sinks.Classify(m.Err) != sinks.Retry || s.Fits(big.Event) == nil {
					t.Fatalf("%s got %v, Fits says %v", m.Event.ID, m.Err, s.Fits(big.Event))
				}
			}
			s.Publish(t.Context(), messages[41:]) // no form fits
			if sinks.Classify(big.Err) != sinks.Refused {
				t.Errorf("the oversize message got %v", big.Err)
			}
			requireStored(t, slices.Delete(slices.Clone(messages), 41, 42))
			want := append(wantIDs("web", 1, 41), wantIDs("web", 43, 100)...)
			if got := ids(readAll(t, c, podsTopic)); !slices.Equal(got, want) {
				t.Errorf("ids are %v", got)
			}
		})
	}
}

func TestInvalidTopicName(t *testing.T) {
	s := openSink(t, newCluster(t), func(c *kafka.Options) {
		c.Topic = "k8s.{name}"
	})
	e := podEvent(strings.Repeat("x", 250), 1)
	if _, err := s.Lane(t.Context(), e); sinks.Classify(err) != sinks.Refused {
		t.Errorf("Lane gave %v", err)
	}
	m := &sinks.Message{Event: e}
	s.Publish(t.Context(), []*sinks.Message{m})
	if sinks.Classify(m.Err) != sinks.Refused {
		t.Errorf("Publish gave %v", m.Err)
	}
}

func TestConcurrentTopicLookup(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c)
	var callers sync.WaitGroup
	for n := range 16 {
		callers.Go(func() {
			m := &sinks.Message{Event: podEvent(fmt.Sprint("pod-", n), 1)}
			s.Publish(t.Context(), []*sinks.Message{m})
			if m.Err != nil {
				t.Error(m.Err)
			}
		})
	}
	callers.Wait()
	records := readAll(t, c, podsTopic)
	for _, r := range records {
		if r.ProducerID != records[0].ProducerID {
			t.Fatalf("two producers, %d and %d, write one partition", r.ProducerID,
				records[0].ProducerID)
		}
	}
}
