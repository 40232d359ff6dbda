package source_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

const keptTopic = "kept"

// keptLog is a topic of one partition, whose batches the test serves.
type keptLog struct {
	*kfake.Cluster
	client  *kgo.Client
	batches [][]byte
	served  atomic.Pointer[[][]byte] // nil: the broker answers by itself
}

// newKeptLog makes a topic with settings and 20 batches of 3 records. Behind every fifth are two
// transactions, of which one is aborted.
func newKeptLog(t *testing.T, settings map[string]*string) *keptLog {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	testkit.OK(t, err)
	t.Cleanup(c.Close)
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.Fetch), 11)
	l := &keptLog{Cluster: c}
	l.client, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("t"), kgo.MaxVersions(old),
		kgo.DefaultProduceTopic(keptTopic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	testkit.OK(t, err)
	t.Cleanup(l.client.Close)
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = keptTopic, 1, 1
	for name, value := range settings {
		setting := kmsg.NewCreateTopicsRequestTopicConfig()
		setting.Name, setting.Value = name, value
		topic.Configs = append(topic.Configs, setting)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = append(create.Topics, topic)
	created, err := create.RequestWith(t.Context(), l.client)
	testkit.OK(t, err)
	testkit.OK(t, kerr.ErrorForCode(created.Topics[0].ErrorCode))
	plain, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic(keptTopic),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	testkit.OK(t, err)
	t.Cleanup(plain.Close)
	for i := range 20 {
		testkit.OK(t, plain.ProduceSync(t.Context(), records(i)...).FirstErr())
		if i%5 > 0 {
			continue
		}
		for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			testkit.OK(t, l.client.BeginTransaction())
			testkit.OK(t, l.client.ProduceSync(t.Context(), records(i)...).FirstErr())
			testkit.OK(t, l.client.EndTransaction(t.Context(), end))
		}
	}
	l.batches = l.fetch(t)
	l.ControlKey(int16(kmsg.Fetch), l.answer)
	return l
}

func records(of int) (list []*kgo.Record) {
	for i := range 3 {
		list = append(list, kgo.StringRecord(fmt.Sprintf("record %d of %d", i, of)))
	}
	return list
}

// deleteUpTo has the broker remove records before an offset.
func (l *keptLog) deleteUpTo(t *testing.T, offset int64) {
	t.Helper()
	request := kmsg.NewPtrDeleteRecordsRequest()
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic = keptTopic
	partition := kmsg.NewDeleteRecordsRequestTopicPartition()
	partition.Offset = offset
	of.Partitions = append(of.Partitions, partition)
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(t.Context(), l.client)
	testkit.OK(t, err)
	testkit.OK(t, kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode))
}

// fetch reads the batches as they are.
func (l *keptLog) fetch(t *testing.T) (batches [][]byte) {
	t.Helper()
	request := kmsg.NewPtrFetchRequest()
	request.MaxBytes, request.MinBytes, request.SessionEpoch = 1<<20, 1, -1
	of := kmsg.NewFetchRequestTopic()
	of.Topic = keptTopic
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.PartitionMaxBytes = 1 << 20
	of.Partitions = append(of.Partitions, partition)
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(t.Context(), l.client)
	testkit.OK(t, err)
	testkit.OK(t, kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode))
	for rest := response.Topics[0].Partitions[0].RecordBatches; len(rest) > 0; {
		size := 12 + binary.BigEndian.Uint32(rest[8:])
		batches = append(batches, rest[:size])
		rest = rest[size:]
	}
	return batches
}

// answer answers a fetch with the batches that are served.
func (l *keptLog) answer(r kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the order of kfake
	l.KeepControl()
	batches := l.served.Load()
	if batches == nil {
		return nil, nil, false
	}
	request := r.(*kmsg.FetchRequest)
	from := request.Topics[0].Partitions[0].FetchOffset
	response := request.ResponseKind().(*kmsg.FetchResponse)
	of := kmsg.NewFetchResponseTopic()
	of.Topic, of.TopicID = keptTopic, request.Topics[0].TopicID
	partition := kmsg.NewFetchResponseTopicPartition()
	for _, b := range *batches {
		if firstOf(b)+int64(binary.BigEndian.Uint32(b[23:])) >= from {
			partition.RecordBatches = append(partition.RecordBatches, b...)
		}
	}
	of.Partitions = append(of.Partitions, partition)
	response.Topics = append(response.Topics, of)
	return response, nil, true
}

func firstOf(batch []byte) int64 { return int64(binary.BigEndian.Uint64(batch)) }

// withoutRecord is a batch from which a record was removed: its offsets stay.
func withoutRecord(batch []byte, n int) []byte {
	const head, count, crc, checked = 61, 57, 17, 21
	at := head
	size := func() int {
		length, prefix := binary.Varint(batch[at:])
		return prefix + int(length)
	}
	for range n {
		at += size()
	}
	left := slices.Concat(batch[:at], batch[at+size():])
	binary.BigEndian.PutUint32(left[8:], uint32(len(left)-12))
	binary.BigEndian.PutUint32(left[count:], binary.BigEndian.Uint32(left[count:])-1)
	binary.BigEndian.PutUint32(left[crc:], crc32.Checksum(left[checked:], crc32.MakeTable(crc32.Castagnoli)))
	return left
}

var unlimited = map[string]*string{"retention.ms": new("-1"), "retention.bytes": new("-1")}

// What somebody has removed from the middle of a partition is a hole in its offsets, which
// transactions do not leave.
func TestRemovedFromPartition(t *testing.T) {
	t.Parallel()
	read := func(l *keptLog) []source.Removal {
		t.Helper()
		r, err := source.Open(t.Context(), source.Config{From: "kafka://" + l.ListenAddrs()[0] + "/" + keptTopic})
		testkit.OK(t, err)
		defer r.Close()
		_, err = readAll(t, r)
		testkit.OK(t, err)
		return r.Removed()
	}
	l := newKeptLog(t, nil)
	if removed := read(l); len(removed) > 0 {
		t.Errorf("nothing was removed, found %+v", removed)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for trial := range 200 { // the first one in every other
		at := (1 + random.IntN(len(l.batches)-2)) * (trial % 2)
		served := slices.Delete(slices.Clone(l.batches), at, at+1)
		want := source.Removal{Lane: keptTopic + "/0", From: uint64(firstOf(l.batches[at])), To: uint64(firstOf(l.batches[at+1])), Singly: true}
		if isPlain := want.To-want.From == 3; isPlain && random.IntN(2) == 0 {
			served = slices.Clone(l.batches)
			served[at] = withoutRecord(served[at], random.IntN(3))
		}
		l.served.Store(&served)
		if removed := read(l); !slices.Equal(removed, []source.Removal{want}) {
			t.Fatalf("found %+v, want %+v", removed, want)
		}
	}
	t.Run("the last ones", func(t *testing.T) {
		t.Parallel()
		for name, batches := range map[string]int{"one": 1, "five": 5, "all": len(l.batches)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newKeptLog(t, nil)
				served := l.batches[:len(l.batches)-batches]
				l.served.Store(&served)
				r := open(t, source.Config{From: "kafka://" + l.ListenAddrs()[0] + "/" + keptTopic, Patience: time.Second})
				_, err := readAll(t, r)
				testkit.OK(t, err)
				last := l.batches[len(l.batches)-1]
				end := uint64(firstOf(last)) + 1 + uint64(binary.BigEndian.Uint32(last[23:]))
				want := source.Removal{Lane: keptTopic + "/0", From: uint64(firstOf(l.batches[len(served)])), To: end, Singly: true}
				if removed := r.Removed(); !slices.Equal(removed, []source.Removal{want}) {
					t.Errorf("found %+v, want %+v", removed, want)
				}
			})
		}
	})
	t.Run("a log that has become shorter", func(t *testing.T) {
		t.Parallel()
		l := newKeptLog(t, nil)
		isCut := atomic.Bool{}
		l.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			l.KeepControl()
			if !isCut.Load() {
				return nil, nil, false
			}
			response := r.ResponseKind().(*kmsg.FetchResponse)
			of := kmsg.NewFetchResponseTopic()
			of.Topic, of.TopicID = keptTopic, r.(*kmsg.FetchRequest).Topics[0].TopicID
			partition := kmsg.NewFetchResponseTopicPartition()
			partition.ErrorCode = kerr.OffsetOutOfRange.Code
			of.Partitions = append(of.Partitions, partition)
			response.Topics = append(response.Topics, of)
			return response, nil, true
		})
		r := open(t, source.Config{From: "kafka://" + l.ListenAddrs()[0] + "/" + keptTopic, Patience: time.Second})
		isCut.Store(true)
		_, err := readAll(t, r)
		testkit.OK(t, err)
		if removed := r.Removed(); len(removed) != 1 || removed[0].From != 0 || !removed[0].Singly {
			t.Errorf("found %+v, want all of it", removed)
		}
	})
	t.Run("a compacted topic has holes by itself", func(t *testing.T) {
		compacted := newKeptLog(t, map[string]*string{"cleanup.policy": new("compact,delete")})
		served := slices.Delete(slices.Clone(compacted.batches), 2, 3)
		compacted.served.Store(&served)
		if removed := read(compacted); len(removed) > 0 {
			t.Errorf("found %+v", removed)
		}
	})
}

// What lacks at the beginning of a partition was removed by somebody, where the topic has no limit.
func TestRemovedFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings map[string]*string
		want     bool
	}{
		"without limits":           {unlimited, true},
		"with a retention of time": {nil, false},
		"with a retention of bytes": {
			map[string]*string{"retention.ms": new("-1"), "retention.bytes": new("1000")}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newKeptLog(t, test.settings)
			r := open(t, source.Config{From: "kafka://" + l.ListenAddrs()[0] + "/" + keptTopic})
			_, err := readAll(t, r)
			testkit.OK(t, err)
			behind := r.Position()[keptTopic+"/0"].Next
			l.deleteUpTo(t, 4)
			for _, read := range []struct {
				what  string
				after source.Position
				want  []source.Removal
			}{
				{"from the start", nil, []source.Removal{{Lane: keptTopic + "/0", From: 0, To: 4, Singly: true}}},
				{"from a position", source.Position{keptTopic + "/0": {Next: 1}}, []source.Removal{{Lane: keptTopic + "/0", From: 1, To: 4, Singly: true}}},
				{"from behind it", source.Position{keptTopic + "/0": {Next: behind}}, nil},
			} {
				r := open(t, source.Config{From: "kafka://" + l.ListenAddrs()[0] + "/" + keptTopic, After: read.after})
				_, err := readAll(t, r)
				testkit.OK(t, err)
				want := read.want
				switch {
				case test.want:
				case read.after == nil:
					want = nil
				case len(want) > 0:
					want[0].Singly = false
				}
				if !slices.Equal(r.Removed(), want) {
					t.Errorf("%s: found %+v, want %+v", read.what, r.Removed(), want)
				}
			}
		})
	}
}

// Who may not see a topic's settings does not know whether somebody or the topic has removed
// something. It can be read all the same.
func TestUnseenSettings(t *testing.T) {
	t.Parallel()
	l := newKeptLog(t, unlimited)
	l.deleteUpTo(t, 4)
	served := slices.Delete(slices.Clone(l.batches), 5, 6)
	l.served.Store(&served)
	l.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		l.KeepControl()
		response := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
		refused := kmsg.NewDescribeConfigsResponseResource()
		refused.ResourceType, refused.ResourceName = kmsg.ConfigResourceTypeTopic, keptTopic
		refused.ErrorCode = kerr.TopicAuthorizationFailed.Code
		response.Resources = append(response.Resources, refused)
		return response, nil, true
	})
	r := open(t, source.Config{From: "kafka://" + l.ListenAddrs()[0] + "/" + keptTopic})
	read, err := readAll(t, r)
	if err != nil || len(read.other) == 0 || len(r.Removed()) > 0 {
		t.Errorf("%d records, %v, removed %+v", len(read.other), err, r.Removed())
	}
}
