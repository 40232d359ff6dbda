package client_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/bridge/client"
)

const (
	podsTopic  = "k8s.test.pods"
	partitions = 2
)

// kafkaBroker is kfake, with a network that can be cut, and topics as the bridge fills them.
type kafkaBroker struct {
	t          testing.TB
	isView     bool
	cluster    *kfake.Cluster
	connection *kgo.Client
	producer   *kgo.Client // of the topic as it is now

	mu    sync.Mutex
	isCut bool       // guarded by mu
	conns []net.Conn // guarded by mu
}

func newKafka(t testing.TB, isView bool) *kafkaBroker {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	must(t, err)
	t.Cleanup(cluster.Close)
	k := &kafkaBroker{t: t, isView: isView, cluster: cluster}
	k.connection = k.connect()
	k.create()
	return k
}

func (k *kafkaBroker) connect() *kgo.Client {
	k.t.Helper()
	made, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.ListenAddrs()...), kgo.Dialer(k.dial),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	must(k.t, err)
	k.t.Cleanup(made.Close)
	return made
}

func (k *kafkaBroker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isCut {
		return nil, errors.New("the network is cut")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		k.conns = append(k.conns, conn)
	}
	return conn, err
}

func (k *kafkaBroker) cut(isCut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = isCut
	for _, conn := range k.conns {
		_ = conn.Close()
	}
	k.conns = nil
}

func (k *kafkaBroker) create() {
	k.t.Helper()
	policy := "delete"
	if k.isView {
		policy = "compact"
	}
	must(k.t, k.cluster.CreateTopic(podsTopic, partitions, map[string]string{
		"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0", "segment.bytes": "1",
	}))
	k.producer = k.connect()
}

func (k *kafkaBroker) source() client.Source {
	if k.isView {
		return client.View(k.connection, podsTopic)
	}
	return client.Topics(k.connection, podsTopic)
}

// send stores an event in the partition of its object, or a copy in each partition.
func (k *kafkaBroker) send(attributes map[string]string, data string) {
	k.t.Helper()
	if attributes["name"] == "" {
		what, _, _ := strings.Cut(strings.TrimPrefix(attributes["id"], "all/pods/"), "/")
		for p := range partitions {
			k.produce(p, "informers/all/pods/"+what, attributes, fmt.Sprint("/partition/", p), data)
		}
		return
	}
	key := "pods/shop/" + attributes["name"]
	p := partitionOf(key)
	k.produce(p, key, attributes, "", data)
	if k.isView && attributes["type"] == client.TypeDeleted {
		k.store(&kgo.Record{Key: []byte(key), Partition: int32(p)})
	}
}

func partitionOf(key string) int {
	hash := fnv.New32()
	_, _ = hash.Write([]byte(key))
	return int(hash.Sum32() % partitions)
}

func (k *kafkaBroker) produce(p int, key string, attributes map[string]string, suffix, data string) {
	k.t.Helper()
	r := &kgo.Record{Partition: int32(p), Key: []byte(key), Value: []byte(data)}
	for name, value := range attributes {
		if name == "id" {
			value += suffix
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	r.Headers = append(r.Headers,
		kgo.RecordHeader{Key: "content-type", Value: []byte("application/json")})
	k.store(r)
}

func (k *kafkaBroker) store(r *kgo.Record) {
	k.t.Helper()
	r.Topic = podsTopic
	must(k.t, k.producer.ProduceSync(k.t.Context(), r).FirstErr())
}

// A compacted topic has lost what was replaced, and is complete nevertheless.
func TestCompactedView(t *testing.T) {
	b := newBroker(t, "view")
	for range 3 {
		for _, name := range []string{"a", "b", "c", "d"} {
			b.put(name)
		}
		b.synced(4)
	}
	b.delete("b")
	b.put("c")
	before := b.size()
	b.kafka.cluster.Compact()
	if kept := b.size(); kept > before/2 || kept == 0 {
		t.Fatalf("of %d bytes compaction has kept %d", before, kept)
	}
	_, h := start(t, run(t, b), client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 11", "list c 17", "list d 14")
	b.kafka.store(&kgo.Record{Key: []byte("pods/shop/a"), Partition: int32(partitionOf("pods/shop/a"))})
	h.wantLines(t, "delete a 11")
}

// size of what the topic has, in bytes.
func (b *broker) size() (n int64) {
	b.t.Helper()
	for _, p := range b.kafka.cluster.PartitionInfos(podsTopic) {
		n += p.NumBytes
	}
	return n
}

// A topic that is no view is refused.
func TestNoViewTopic(t *testing.T) {
	b := newBroker(t, "topics")
	_, problem := 0, error(nil)
	for _, err := range client.View(b.kafka.connection, podsTopic).Events(t.Context(), "") {
		problem = err
	}
	if problem == nil || !strings.Contains(problem.Error(), "cleanup.policy is delete") {
		t.Errorf("got %v", problem)
	}
}

// The end of a list is in each partition: one that has not got it yet may lack objects.
func TestListEndPartitions(t *testing.T) {
	b := newBroker(t, "topics")
	b.put("a")
	b.put("b")
	synced := map[string]string{
		"specversion": "1.0", "source": "/clusters/test", "informer": "all", "apiversion": "v1",
		"resource": "pods", "type": client.TypeSynced, "id": "all/pods/synced/3",
		"resourceversion": "3",
	}
	const key = "informers/all/pods/synced"
	b.kafka.produce(0, key, synced, "/partition/0", `{"items":2}`)
	c := run(t, b)
	lw, err := c.ListerWatcher(t.Context(), pods, client.Options{})
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if list, err := lw.ListWithContext(ctx, metav1.ListOptions{}); err == nil {
		t.Fatalf("it is complete without an end in partition 1: %+v", list)
	}
	b.kafka.produce(1, key, synced, "/partition/1", `{"items":2}`)
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1", "list b 2")
}

// A topic that gets partitions is read on, also by who is reading it.
func TestNewPartitions(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "topics")
	b.put("a")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var got []string
	for e, err := range b.source().Events(ctx, "") {
		must(t, err)
		got = append(got, fmt.Sprint(e.Type(), " ", e.Attribute("name")))
		if len(got) == 2 {
			break
		}
		grown, err := kadm.NewClient(b.kafka.connection).CreatePartitions(ctx, 1, podsTopic)
		must(t, err)
		must(t, grown.Error())
		b.kafka.producer = b.kafka.connect()
		b.kafka.produce(partitions, "pods/shop/b", map[string]string{
			"specversion": "1.0", "type": client.TypeAdded, "id": "uid-b/2", "source": "/clusters/test",
			"name": "b",
		}, "", podJSON("b", 2))
	}
	if want := []string{client.TypeUpdated + " a", client.TypeAdded + " b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Where a topic is chosen by namespace, no place says that a list has ended.
func TestListEndTopic(t *testing.T) {
	b := newBroker(t, "topics")
	must(t, b.kafka.cluster.CreateTopic("k8s.test.other", 1, nil))
	b.put("a")
	must(t, b.kafka.connection.ProduceSync(t.Context(), &kgo.Record{
		Topic: "k8s.test.other", Value: []byte(`{"specversion":"1.0","type":"` + client.TypeSynced +
			`","id":"all/pods/synced/2/partition/0","source":"/clusters/test","informer":"all",` +
			`"apiversion":"v1","resource":"pods","resourceversion":"2","data":{"items":1}}`),
		Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents+json")}},
	}).FirstErr())
	c := client.New(client.Topics(b.kafka.connection, podsTopic, "k8s.test.other"))
	go func() { _ = c.Run(t.Context()) }()
	lw, err := c.ListerWatcher(t.Context(), pods, client.Options{})
	must(t, err)
	_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "the ends of its lists in topic k8s.test.other") {
		t.Errorf("got %v", err)
	}
}
