package kafka_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

const podsTopic = "k8s.test.pods"

func newCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.SeedTopics(1, podsTopic),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newSink makes a sink for a cluster, not yet open.
func newSink(t testing.TB, c *kfake.Cluster, change ...func(*kafka.Options)) *kafka.Sink {
	t.Helper()
	config := withDefaults(kafka.Options{
		Connection: kafka.Connection{Brokers: c.ListenAddrs(), Timeout: 2 * time.Second},
		Config:     kafka.Config{Compression: "none"},
	})
	config.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, f := range change {
		f(&config)
	}
	s, err := kafka.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// withDefaults puts the defaults into the place of the keys' zero values.
func withDefaults(o kafka.Options) kafka.Options {
	o.Config, o.Encoding = testkit.WithDefaults(o.Config), cmp.Or(o.Encoding, sinks.Binary)
	return o
}

// openSink makes a sink and opens it.
func openSink(t testing.TB, c *kfake.Cluster, change ...func(*kafka.Options)) *kafka.Sink {
	t.Helper()
	s := newSink(t, c, change...)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// podEvent is version number n of a pod.
func podEvent(pod string, n int) *event.Event {
	version := fmt.Sprint(n)
	return &event.Event{
		ID: "uid-" + pod + "/" +
			version, Source: "/clusters/test", Type: "dev.kubebridge.resource.updated",
		Subject: "api/v1/namespaces/shop/pods/" + pod, Time: time.Date(2026, 11, 21, 1, 2, 3,
			4000000, time.UTC),
		PartitionKey: "pods/shop/" +
			pod, Sequence: fmt.Sprintf("%020d", n),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: pod,
			UID: "uid-" + pod, ResourceVersion: version,
		},
		OriginAttributes: event.OriginAttributes{Manager: "kubelet", Initial: true},
		Data: []byte(`{"kind":"Pod","metadata":{"name":"` + pod + `","resourceVersion":"` +
			version + `"}}`),
		Routing: event.Routing{Cluster: "test", Version: "v1"}, Op: event.Updated, Informer: "workloads",
	}
}

func podEvents(pod string, from, to int) (all []*sinks.Message) {
	for n := from; n <= to; n++ {
		all = append(all, &sinks.Message{Event: podEvent(pod, n), Err: errUnset})
	}
	return all
}

var errUnset = fmt.Errorf("publish left the message without an answer")

// publish sends messages and fails the test when one of them was not stored.
func publish(t testing.TB, s *kafka.Sink, messages ...*sinks.Message) {
	t.Helper()
	s.Publish(t.Context(), messages)
	requireStored(t, messages)
}

func requireStored(t testing.TB, messages []*sinks.Message) {
	t.Helper()
	for _, m := range messages {
		if m.Err != nil {
			t.Fatalf("%s: %v", m.Event.ID, m.Err)
		}
	}
}

// readAll reads a topic from its beginning to its end with franz-go, in order per partition.
func readAll(t testing.TB, c *kfake.Cluster, topic string, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	want := 0
	for _, p := range c.PartitionInfos(topic) {
		want += int(p.HighWatermark - p.LogStartOffset)
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.DisableFetchSessions(), // with them, Close has a data race in franz-go
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var records []*kgo.Record
	for len(records) < want {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v after %d of %d records", topic, err, len(records), want)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// ids gives the ce_id of each record; "-" for one that has none.
func ids(records []*kgo.Record) (all []string) {
	for _, r := range records {
		id, ok := header(r, "ce_id")
		if !ok {
			id = "-"
		}
		all = append(all, id)
	}
	return all
}

func header(r *kgo.Record, name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

func wantIDs(pod string, from, to int) (all []string) {
	for _, m := range podEvents(pod, from, to) {
		all = append(all, m.Event.ID)
	}
	return all
}

// received is a Kafka record as the CloudEvents SDK reads messages: the Kafka protocol binding,
// from its side.
type received struct{ record *kgo.Record }

var kafkaVersions = spec.WithPrefix("ce_")

func (m received) ReadEncoding() binding.Encoding {
	if contentType, _ := header(m.record, "content-type"); format.IsFormat(contentType) {
		return binding.EncodingStructured
	}
	if _, ok := header(m.record, "ce_specversion"); ok {
		return binding.EncodingBinary
	}
	return binding.EncodingUnknown
}

func (m received) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.ReadEncoding() != binding.EncodingStructured {
		return binding.ErrNotStructured
	}
	contentType, _ := header(m.record, "content-type")
	return w.SetStructuredEvent(ctx, format.Lookup(contentType),
		strings.NewReader(string(m.record.Value)))
}

func (m received) ReadBinary(ctx context.Context, w binding.BinaryWriter) error {
	if m.ReadEncoding() != binding.EncodingBinary {
		return binding.ErrNotBinary
	}
	declared, _ := header(m.record, "ce_specversion")
	version := kafkaVersions.Version(declared)
	for _, h := range m.record.Headers {
		var err error
		if attribute := version.Attribute(h.Key); attribute != nil {
			err = w.SetAttribute(attribute, string(h.Value))
		} else if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			err = w.SetExtension(name, string(h.Value))
		} else if h.Key == "content-type" {
			err = w.SetAttribute(version.AttributeFromKind(spec.DataContentType), string(h.Value))
		}
		if err != nil {
			return err
		}
	}
	if m.record.Value == nil {
		return nil
	}
	return w.SetData(strings.NewReader(string(m.record.Value)))
}

func (received) Finish(error) error { return nil }

func (m received) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	declared, _ := header(m.record, "ce_specversion")
	attribute := kafkaVersions.Version(declared).AttributeFromKind(kind)
	name := attribute.PrefixedName()
	if kind == spec.DataContentType {
		name = "content-type"
	}
	if value, ok := header(m.record, name); ok {
		return attribute, value
	}
	return attribute, nil
}

func (m received) GetExtension(name string) any {
	if value, ok := header(m.record, "ce_"+name); ok {
		return value
	}
	return nil
}

// cloudEvent reads a record with the CloudEvents SDK and validates it.
func cloudEvent(t testing.TB, r *kgo.Record) *ce.Event {
	t.Helper()
	e, err := binding.ToEvent(t.Context(), received{r})
	if err != nil {
		t.Fatalf("record at %d is no CloudEvent: %v", r.Offset, err)
	}
	if err := e.Validate(); err != nil {
		t.Fatalf("record at %d: %v", r.Offset, err)
	}
	return e
}

// topicsOf lists the topics of a cluster.
func topicsOf(t testing.TB, c *kfake.Cluster) (names []string) {
	t.Helper()
	client := newClient(t, c)
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = nil // all
	answer, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range answer.Topics {
		names = append(names, *topic.Topic)
	}
	return names
}

func newClient(t testing.TB, c *kfake.Cluster) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// logTo sends a sink's log to a place where the test can read it.
func logTo(w io.Writer) func(*kafka.Options) {
	return func(c *kafka.Options) { c.Log = slog.New(slog.NewTextHandler(w, nil)) }
}
