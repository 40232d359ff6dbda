package kafka_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestHostileBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for _, key := range []kmsg.Key{
		kmsg.ApiVersions, kmsg.Metadata, kmsg.InitProducerID, kmsg.ListOffsets, kmsg.Produce,
		kmsg.DescribeConfigs, kmsg.Fetch, kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.CreateTopics,
	} {
		for name, lie := range generalLies() {
			t.Run(key.Name()+": "+name, func(t *testing.T) { lieAbout(t, key, lie) })
		}
		t.Run(key.Name()+": bytes are other ones", func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(key)))
			lieAbout(t, key, func(_ int16, frame []byte) []byte {
				for range 1 + random.IntN(4) {
					frame[8+random.IntN(len(frame)-8)] = byte(random.Uint32())
				}
				return frame
			})
		})
	}
	for name, c := range particularLies() {
		t.Run(name, func(t *testing.T) { lieAbout(t, c.key, c.lie) })
	}
}

// lieAbout lies several times in a row to a sink that opens, recalls and publishes. Everything is
// stored in the end, in order.
func lieAbout(t *testing.T, key kmsg.Key, lie func(int16, []byte) []byte) {
	t.Helper()
	if key == kmsg.CreateTopics {
		lieAboutCreation(t, lie)
		return
	}
	const user, password = "bridge", "secret"
	login := func(c *kafka.Options) {
		c.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: user, Password: password}
	}
	inBubble(t, func(t *testing.T, c *kfake.Cluster, l *liar) {
		dying := openSink(t, c, l.use, login)
		publish(t, dying, podEvents("web", 1, 2)...)
		position := dying.Position()
		publish(t, dying, podEvents("web", 3, 4)...)
		_ = dying.Close()

		s := newSink(t, c, l.use, login, func(c *kafka.Options) { c.Log = nil })
		const times = 5
		l.answer(key, times, lie)
		l.allocates(t, func() {
			asRetry(t, func() error { return s.Open(t.Context()) })
			asRetry(t, func() error { return s.ReadBack(t.Context(), position, func(string) {}) })
			publishPatiently(t, s, podEvents("web", 5, 7))
		})
		l.requireLies(t)
		l.answer(key, times, lie)
		publishPatiently(t, s, podEvents("web", 8, 9))
		_ = s.Close()
		l.answer(key, 0, nil)
		requireInOrder(t, ids(readAll(t, c, podsTopic, kgo.Dialer(l.virtual.DialContext),
			kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))), 9)
	}, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password))
}

// lieAboutCreation lies to a sink that creates its topic. What it publishes is stored in the end,
// in order.
func lieAboutCreation(t *testing.T, lie func(int16, []byte) []byte) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *kfake.Cluster, l *liar) {
		const made = "made"
		s := newSink(t, c, l.use, func(c *kafka.Options) {
			c.Log = nil
			c.Topic, c.CreateTopics = made, &kafka.CreateTopics{Partitions: 1}
		})
		l.answer(kmsg.CreateTopics, 5, lie)
		l.allocates(t, func() {
			asRetry(t, func() error { return s.Open(t.Context()) })
			publishPatiently(t, s, podEvents("web", 1, 3))
		})
		l.requireLies(t)
		_ = s.Close()
		l.answer(kmsg.CreateTopics, 0, nil)
		requireInOrder(t, ids(readAll(t, c, made, kgo.Dialer(l.virtual.DialContext))), 3)
	})
}

// retry repeats what may heal, as the publisher does.
func asRetry(t *testing.T, f func() error) {
	t.Helper()
	for range 100 {
		err := f()
		if err == nil {
			return
		}
		if class := sinks.Classify(err); class != sinks.Retry && class != sinks.Reconnect {
			t.Fatalf("%s: %v", class, err)
		}
		time.Sleep(time.Second)
	}
	t.Fatal("it does not end")
}

// publishPatiently sends messages again until they are stored.
func publishPatiently(t *testing.T, s *kafka.Sink, messages []*sinks.Message) {
	t.Helper()
	asRetry(t, func() error {
		if _, err := s.Lane(t.Context(), messages[0].Event); err != nil {
			return err
		}
		s.Publish(t.Context(), messages)
		for i, m := range messages {
			if m.Err != nil {
				messages = messages[i:]
				return m.Err
			}
		}
		return nil
	})
}

// requireInOrder fails unless the first occurrences are 1 to n: repeats have the same ids.
func requireInOrder(t *testing.T, got []string, n int) {
	t.Helper()
	var first []string
	for _, id := range got {
		if !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	if want := wantIDs("web", 1, n); !slices.Equal(first, want) {
		t.Errorf("the log holds %v", got)
	}
}

const notEnoughReplicasAfterAppend = 20

// contradiction says of a batch that it is stored and that it is not, in this order or the other
// one.
func contradiction(isErrorFirst bool) particularLie {
	return particularLie{kmsg.Produce, as(func(r *kmsg.ProduceResponse) {
		truth := r.Topics[0].Partitions[0]
		lie := truth
		lie.ErrorCode, lie.BaseOffset = notEnoughReplicasAfterAppend, -1
		answers := []kmsg.ProduceResponseTopicPartition{truth, lie}
		if isErrorFirst {
			slices.Reverse(answers)
		}
		r.Topics[0].Partitions = answers
	})}
}

type particularLie struct {
	key kmsg.Key
	lie func(int16, []byte) []byte
}

func particularLies() map[string]particularLie {
	partitions := func(change func(*kmsg.MetadataResponseTopic)) particularLie {
		return particularLie{kmsg.Metadata, as(func(r *kmsg.MetadataResponse) {
			for i := range r.Topics {
				change(&r.Topics[i])
			}
		})}
	}
	index := func(indices ...int32) particularLie {
		return partitions(func(topic *kmsg.MetadataResponseTopic) {
			one := topic.Partitions[0]
			topic.Partitions = nil
			for _, i := range indices {
				one.Partition = i
				topic.Partitions = append(topic.Partitions, one)
			}
		})
	}
	return map[string]particularLie{
		"a partition before the first": index(-1),
		"a partition of 2^31-1":        index(math.MaxInt32),
		"a gap in the partitions":      index(0, 2),
		"a partition twice":            index(0, 0),
		"no partitions":                index(),
		"a leader that nobody is":      partitions(func(t *kmsg.MetadataResponseTopic) { t.Partitions[0].Leader = 4711 }),
		"a negative leader":            partitions(func(t *kmsg.MetadataResponseTopic) { t.Partitions[0].Leader = math.MinInt32 }),
		"another topic":                partitions(func(t *kmsg.MetadataResponseTopic) { *t.Topic = "another" }),
		"an error of the future":       partitions(func(t *kmsg.MetadataResponseTopic) { t.ErrorCode = 999 }),
		"no topics": {
			kmsg.Metadata,
			as(func(r *kmsg.MetadataResponse) { r.Topics = nil }),
		},
		"a port that is none": {
			kmsg.Metadata,
			as(func(r *kmsg.MetadataResponse) { r.Brokers[0].Port = -7 }),
		},
		"a broker without a name": {
			kmsg.Metadata,
			as(func(r *kmsg.MetadataResponse) { r.Brokers[0].Host = "" }),
		},
		"no brokers": {
			kmsg.Metadata,
			as(func(r *kmsg.MetadataResponse) { r.Brokers = nil }),
		},
		"a negative producer id": {
			kmsg.InitProducerID,
			as(func(r *kmsg.InitProducerIDResponse) { r.ProducerID = -9 }),
		},
		"a negative producer epoch": {
			kmsg.InitProducerID,
			as(func(r *kmsg.InitProducerIDResponse) { r.ProducerEpoch = -9 }),
		},
		"an ack for another partition": {
			kmsg.Produce,
			as(func(r *kmsg.ProduceResponse) { r.Topics[0].Partitions[0].Partition++ }),
		},
		"an ack for another topic": {
			kmsg.Produce,
			as(func(r *kmsg.ProduceResponse) { r.Topics[0].Topic = "another" }),
		},
		"an ack for two topics": {
			kmsg.Produce,
			as(func(r *kmsg.ProduceResponse) { r.Topics = append(r.Topics, r.Topics[0]) }),
		},
		"an ack without a partition": {
			kmsg.Produce,
			as(func(r *kmsg.ProduceResponse) { r.Topics[0].Partitions = nil }),
		},
		"an ack at the end of time": {
			kmsg.Produce,
			as(func(r *kmsg.ProduceResponse) { r.Topics[0].Partitions[0].BaseOffset = math.MaxInt64 }),
		},
		"an ack that is an error": {kmsg.Produce, as(func(r *kmsg.ProduceResponse) {
			r.Topics[0].Partitions[0].ErrorCode = notEnoughReplicasAfterAppend
		})},
		"an ack and an error": contradiction(false),
		"an error and an ack": contradiction(true),
		"an error and a long story": {kmsg.Produce, as(func(r *kmsg.ProduceResponse) {
			r.Topics[0].Partitions[0].ErrorCode = 999
			r.Topics[0].Partitions[0].ErrorMessage = new(strings.Repeat("x", math.MaxInt16))
		})},
		"an end of another partition": {
			kmsg.ListOffsets,
			as(func(r *kmsg.ListOffsetsResponse) { r.Topics[0].Partitions[0].Partition++ }),
		},
		"an end before the start": {
			kmsg.ListOffsets,
			as(func(r *kmsg.ListOffsetsResponse) { r.Topics[0].Partitions[0].Offset = math.MinInt64 }),
		},
		"records of another topic": {
			kmsg.Fetch,
			as(func(r *kmsg.FetchResponse) { r.Topics[0].Topic = "another" }),
		},
		"no mechanism": {
			kmsg.SASLHandshake,
			as(func(r *kmsg.SASLHandshakeResponse) { r.ErrorCode, r.SupportedMechanisms = 33, nil }),
		},
		"mechanisms without end": {kmsg.SASLHandshake, as(func(r *kmsg.SASLHandshakeResponse) {
			r.ErrorCode, r.SupportedMechanisms = 33, slices.Repeat([]string{"PLAIN"}, 100_000)
		})},
		"a refused password": {kmsg.SASLAuthenticate, as(func(r *kmsg.SASLAuthenticateResponse) {
			r.ErrorCode, r.ErrorMessage = 58, new(strings.Repeat("x", math.MaxInt16))
		})},
		"a challenge where none is due": {
			kmsg.SASLAuthenticate,
			as(func(r *kmsg.SASLAuthenticateResponse) { r.SASLAuthBytes = []byte("r=x,s=eA==,i=9999999999") }),
		},
		"a session that has ended": {
			kmsg.SASLAuthenticate,
			as(func(r *kmsg.SASLAuthenticateResponse) { r.SessionLifetimeMillis = 1 }),
		},
		"a session before its beginning": {
			kmsg.SASLAuthenticate,
			as(func(r *kmsg.SASLAuthenticateResponse) { r.SessionLifetimeMillis = math.MinInt64 }),
		},
		"a session without end": {
			kmsg.SASLAuthenticate,
			as(func(r *kmsg.SASLAuthenticateResponse) { r.SessionLifetimeMillis = math.MaxInt64 }),
		},
		"a created topic of another name": {
			kmsg.CreateTopics,
			as(func(r *kmsg.CreateTopicsResponse) { r.Topics[0].Topic = "another" }),
		},
		"nothing was created": {
			kmsg.CreateTopics,
			as(func(r *kmsg.CreateTopicsResponse) { r.Topics = nil }),
		},
		"a topic was created and was there": {kmsg.CreateTopics, as(func(r *kmsg.CreateTopicsResponse) {
			again := r.Topics[0]
			again.ErrorCode = 36
			r.Topics = append(r.Topics, again)
		})},
		"a creation that failed without a reason": {
			kmsg.CreateTopics,
			as(func(r *kmsg.CreateTopicsResponse) { r.Topics[0].ErrorCode = 999 }),
		},
		"no version of anything": {kmsg.ApiVersions, as(func(r *kmsg.ApiVersionsResponse) {
			for i := range r.ApiKeys {
				r.ApiKeys[i].MinVersion, r.ApiKeys[i].MaxVersion = math.MaxInt16, math.MinInt16
			}
		})},
	}
}

// hugeBatch is a batch of one record with a value of so many zeros, as a producer would send it. It
// makes little garbage itself.
func hugeBatch(t testing.TB, codec compress.Compression, size int) []byte {
	t.Helper()
	batch, err := kafka.EncodeBatch(codec, 1, 0, 0, kafka.BatchRecord{
		Time: time.Now(),
		Key:  new("bomb"), Value: make([]byte, size),
	})
	if err != nil {
		t.Fatal(err)
	}
	return batch[4:]
}

// at moves a batch to an offset: that is not part of the checksum.
func at(offset int64, batch []byte) []byte {
	batch = slices.Clone(batch)
	binary.BigEndian.PutUint64(batch, uint64(offset))
	return batch
}

// resum writes the checksum of a changed batch into it.
func resum(batch []byte) []byte {
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:],
		crc32.MakeTable(crc32.Castagnoli)))
	return batch
}

// TestHostileLog reads back a log in which somebody has put batches behind the bridge's last ones.
func TestHostileLog(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	small := func(change func(batch []byte)) func(testing.TB) []byte {
		return func(t testing.TB) []byte {
			batch := hugeBatch(t, compress.None, 100)
			change(batch)
			return resum(batch)
		}
	}
	bomb := func(codec compress.Compression) func(testing.TB) []byte {
		return func(t testing.TB) []byte { return hugeBatch(t, codec, 200<<20) }
	}
	for name, c := range map[string]struct {
		batch  func(testing.TB) []byte
		silent bool // it can't be the sink's, and is not worth a warning
	}{
		"200 MiB of zeros in gzip":   {bomb(compress.Gzip), false},
		"200 MiB of zeros in lz4":    {bomb(compress.Lz4), false},
		"200 MiB of zeros in snappy": {bomb(compress.Snappy), false},
		"200 MiB of zeros in zstd":   {bomb(compress.Zstd), false},
		"an unknown compression":     {small(func(b []byte) { b[22] = 7 }), false},
		"no xerial framing":          {small(func(b []byte) { b[22] = 2 }), false},
		"what is no zstd":            {small(func(b []byte) { b[22] = 4 }), false},
		"2^31-1 records": {small(func(b []byte) {
			binary.BigEndian.PutUint32(b[57:],
				math.MaxInt32)
		}), false},
		"-1 records": {small(func(b []byte) {
			binary.BigEndian.PutUint32(b[57:],
				math.MaxUint32)
		}), false},
		"one record too many": {small(func(b []byte) {
			binary.BigEndian.PutUint32(b[57:],
				2)
		}), false},
		"a value without end": {small(func(b []byte) {
			copy(b[61+9:],
				[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
		}), false},
		"headers without end": {small(func(b []byte) {
			copy(b[len(b)-1:],
				[]byte{0x7f})
		}), false},
		"a wrong checksum": {func(t testing.TB) []byte {
			b := hugeBatch(t,
				compress.None, 9)
			b[30] ^= 1
			return b
		}, false},
		"no producer": {small(func(b []byte) {
			copy(b[43:],
				bytes.Repeat([]byte{0xff}, 8))
		}), true},
		"a transaction": {small(func(b []byte) { b[22] |= 0x10 }), true},
		"a message of the first format": {func(t testing.TB) []byte {
			b := hugeBatch(t,
				compress.None, 9)
			b[16] = 1
			return b
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			hostile := c.batch(t)
			inBubble(t, func(t *testing.T, cluster *kfake.Cluster, l *liar) {
				readBackWith(t, cluster, l, c.silent, as(func(r *kmsg.FetchResponse) {
					p := &r.Topics[0].Partitions[0]
					p.RecordBatches = append(at(2, hostile), at(4, p.RecordBatches)...)
				}))
			})
		})
	}
	t.Run("a batch that is larger than an answer may be", func(t *testing.T) {
		inBubble(t, func(t *testing.T, cluster *kfake.Cluster, l *liar) {
			readBackWith(t, cluster, l, false, as(func(r *kmsg.FetchResponse) {
				p := &r.Topics[0].Partitions[0]
				large := at(2, hugeBatch(t, compress.None, 33<<20))
				p.RecordBatches = append(large, at(4, p.RecordBatches)...)
			}))
		})
	})
}

// readBackWith reads back two batches of the sink's own, of which the first answer is a lie.
func readBackWith(
	t *testing.T, c *kfake.Cluster, l *liar, silent bool, lie func(int16, []byte) []byte,
) {
	t.Helper()
	dying := openSink(t, c, l.use)
	publish(t, dying, podEvents("web", 1, 2)...)
	position := dying.Position()
	publish(t, dying, podEvents("web", 3, 4)...)
	publish(t, dying, podEvents("web", 5, 6)...)
	_ = dying.Close()
	var said bytes.Buffer
	registry := prometheus.NewRegistry()
	s := openSink(t, c, l.use, logTo(&said), func(c *kafka.Options) { c.Registry = registry })
	l.answer(kmsg.Fetch, 1, lie)
	var found []string
	var err error
	harm := l.allocates(t, func() {
		err = s.ReadBack(t.Context(), position, func(id string) { found = append(found, id) })
	})
	if err != nil || l.left() > 0 {
		t.Fatalf("%v; %d lies are left", err, l.left())
	}
	t.Logf("%d KiB were allocated", harm>>10)
	if !slices.Contains(found, "workloads/uid-web/4") {
		t.Errorf("found %v", found)
	}
	want := 1.0
	if silent {
		want = 0
	}
	if got := testkit.Metric(t, registry, "bridge_kafka_damaged_batches_total"); got != want ||
		strings.Contains(said.String(), "can't be read back") == silent {
		t.Errorf("%v damaged batches; it said %s", got, &said)
	}
	_ = s.Close()
}

// A broker that asks for so much hashing is not one to log in to.
func TestScramIterations(t *testing.T) {
	for challenge, ok := range map[string]bool{
		"r=abc,s=QSXCR+Q6sek8bf92,i=4096":                 true,
		"r=abc,s=QSXCR+Q6sek8bf92,i=1000000":              true,
		"r=abc,s=QSXCR+Q6sek8bf92,i=1000001":              false,
		"r=abc,s=QSXCR+Q6sek8bf92,i=99999999999999999999": false,
		"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=":                  true,
		"":                                                true,
	} {
		if err := kafka.CheckChallenge([]byte(challenge)); (err == nil) != ok || err != nil &&
			!errors.Is(err, kafka.Malformed) {
			t.Errorf("%q: %v", challenge, err)
		}
	}
}
