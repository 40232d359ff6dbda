package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// NewEvent is the version-th event of an object: an update of a Deployment with every attribute set
// and a payload of about size bytes, with white space in it that a sink must not touch. Versions
// start at 1; equal arguments give equal events.
func NewEvent(name string, version, size int) *event.Event {
	return &event.Event{
		ID:           fmt.Sprintf("uid-%s/%d", name, version),
		Source:       "/clusters/" + Cluster,
		Type:         "dev.kubebridge.resource.updated",
		Subject:      "apis/apps/v1/namespaces/shop/deployments/" + name,
		Time:         time.Date(2026, 11, 21, 10, 20, 30, 123456789, time.UTC),
		PartitionKey: "deployments.apps/shop/" + name,
		Sequence:     fmt.Sprintf("%020d", version),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "apps/v1", Kind: "Deployment",
			Resource: "deployments", Namespace: "shop",
			Name: name, UID: "uid-" + name,
			ResourceVersion: fmt.Sprint(version),
		},
		OriginAttributes: event.OriginAttributes{Manager: "kubectl-edit"},
		Data:             payload(name, version, size),
		Routing: event.Routing{
			Cluster: Cluster, Group: "apps", Version: "v1",
		},
		Op:       event.Updated,
		Informer: "workloads",
	}
}

func payload(name string, version, size int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{ \"kind\":\t\"Deployment\", \"metadata\": "+
		"{\"name\":%q,\"resourceVersion\":\"%d\"}, \"html\":\"<&>\", \"pad\":\"", name, version)
	const closing = `" }`
	for b.Len() < size-len(closing) {
		b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[b.Len()*7%36])
	}
	b.WriteString(closing)
	return b.Bytes()
}

// gapEvent is an event about an informer: it has no object.
func gapEvent() *event.Event {
	return &event.Event{
		ID:           "gap/workloads/100/200",
		Source:       "/clusters/" + Cluster,
		Type:         "dev.kubebridge.informer.gap",
		Subject:      "informers/workloads",
		Time:         time.Date(2026, 11, 21, 10, 20, 30, 0, time.UTC),
		PartitionKey: "informers/workloads",
		Data:         []byte(`{"from":"100","to":"200","reason":"expired"}`),
		Routing:      event.Routing{Cluster: Cluster},
		Op:           event.Gap,
		Informer:     "workloads",
	}
}

// attributesOf is what a reader must find of an event.
func attributesOf(e *event.Event) map[string]string {
	attributes := map[string]string{}
	e.Each(func(name, value string) { attributes[name] = value })
	return attributes
}

// Received is one stored message, as the CloudEvents SDK understands it.
type Received struct {
	// Attributes in their canonical string form, specversion and extensions included.
	Attributes map[string]string
	Data       []byte
	// Destination is the subject or topic it was stored under; Partition the partition of it, where
	// there is such; Key the message key, where there is one.
	Destination string
	Partition   int
	Key         string
}

// ParseBinary parses a message in binary mode. attributes are the message's headers with the prefix
// ("ce-", "ce_") and the header encoding removed; the binding's datacontenttype is among them.
func ParseBinary(attributes map[string]string, data []byte) (Received, error) {
	e, err := binding.ToEvent(context.Background(), &binaryMessage{attributes, data})
	if err != nil {
		return Received{}, fmt.Errorf("binary CloudEvent: %w", err)
	}
	return received(e)
}

// ParseStructured parses a message in structured mode, in the JSON format.
func ParseStructured(body []byte) (Received, error) {
	var e cloudevent.Event
	if err := format.JSON.Unmarshal(body, &e); err != nil {
		return Received{}, fmt.Errorf("structured CloudEvent: %w in %.200q", err, body)
	}
	return received(&e)
}

// received flattens an event of the SDK, which must be valid.
func received(e *cloudevent.Event) (Received, error) {
	if err := e.Validate(); err != nil {
		return Received{}, fmt.Errorf("invalid CloudEvent: %w", err)
	}
	r := Received{Attributes: map[string]string{}, Data: e.Data()}
	for _, attribute := range spec.VS.Version(e.SpecVersion()).Attributes() {
		if value := attribute.Get(e.Context); value != nil {
			if err := r.put(attribute.Name(), value); err != nil {
				return Received{}, err
			}
		}
	}
	for name, value := range e.Extensions() {
		if err := r.put(name, value); err != nil {
			return Received{}, err
		}
	}
	return r, nil
}

func (r *Received) put(name string, value any) error {
	text, err := types.Format(value)
	if err != nil {
		return fmt.Errorf("attribute %s: %w", name, err)
	}
	if text != "" {
		r.Attributes[name] = text
	}
	return nil
}

// binaryMessage lets the SDK read attributes and data of any binding.
type binaryMessage struct {
	attributes map[string]string
	data       []byte
}

func (m *binaryMessage) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (m *binaryMessage) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m *binaryMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	version := spec.VS.Version(m.attributes["specversion"])
	if version == nil {
		return fmt.Errorf("unknown specversion %q", m.attributes["specversion"])
	}
	for name, value := range m.attributes {
		var err error
		if attribute := version.Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, value)
		} else {
			err = w.SetExtension(name, value)
		}
		if err != nil {
			return fmt.Errorf("attribute %s=%q: %w", name, value, err)
		}
	}
	return w.SetData(bytes.NewReader(m.data))
}

func (m *binaryMessage) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := spec.VS.Latest().AttributeFromKind(kind)
	if attribute == nil {
		return nil, nil
	}
	if value, ok := m.attributes[attribute.Name()]; ok {
		return attribute, value
	}
	return attribute, nil
}

func (m *binaryMessage) GetExtension(name string) any {
	if value, ok := m.attributes[name]; ok {
		return value
	}
	return nil
}

// open opens a new sink over the broker and closes it when the case ends.
func open(t *testing.T, b *Broker) sinks.Sink {
	t.Helper()
	sink := b.NewSink(t)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sink
}

// publish sends events as the publisher does: with the gate of the sink's Order, resending what is
// answered Retry or Reconnect until all are stored. Any other answer fails t.
func publish(t *testing.T, sink sinks.Sink, events ...*event.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(events) > 0 {
		batch, rest := nextCall(ctx, t, sink, events)
		sink.Publish(ctx, batch)
		unsent := unsent(t, sink.Order(), batch)
		if len(unsent) > 0 {
			select { // a resend without a pause would be a busy loop while the broker is unavailable
			case <-ctx.Done():
				t.Fatalf("%d messages not stored after a minute; the first: %v",
					len(unsent)+len(rest), batch[0].Err)
			case <-time.After(20 * time.Millisecond):
			}
		}
		events = append(unsent, rest...)
	}
}

// nextCall takes what may go into one Publish call, in order, and returns the rest. With ByObject
// that is one message of each lane, with ByLane the messages of the first lane.
func nextCall(
	ctx context.Context, t *testing.T, sink sinks.Sink, events []*event.Event,
) (batch []*sinks.Message, rest []*event.Event) {
	t.Helper()
	limits := sink.Limits()
	maxMessages, maxBytes := cmp.Or(limits.Messages, 512), cmp.Or(limits.Bytes, 900<<10)
	blocked := map[string]bool{} // lanes whose later messages have to wait for the next call
	first, size := "", 0
	for i, e := range events {
		lane := laneOf(ctx, t, sink, e)
		if i == 0 {
			first = lane
		}
		fits := len(batch) == 0 || len(batch) < maxMessages && size+len(e.Data) <= maxBytes
		if !fits || blocked[lane] || sink.Order() == sinks.ByLane && lane != first {
			blocked[lane] = true
			rest = append(rest, e)
			continue
		}
		blocked[lane] = sink.Order() == sinks.ByObject
		size += len(e.Data)
		batch = append(batch, &sinks.Message{Event: e})
	}
	return batch, rest
}

func laneOf(ctx context.Context, t *testing.T, sink sinks.Sink, e *event.Event) string {
	t.Helper()
	for {
		lane, err := sink.Lane(ctx, e)
		if err == nil {
			return lane
		}
		if class := sinks.Classify(err); class != sinks.Retry && class != sinks.Reconnect {
			t.Fatalf("lane of %s: %v (%s)", e.ID, err, class)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// unsent are the events to send again, in order. It fails t on an answer that the publisher would
// not resend, and, with ByLane, when the sink acknowledged a message behind one that it did not.
func unsent(t *testing.T, order sinks.Order, batch []*sinks.Message) (events []*event.Event) {
	t.Helper()
	for _, m := range batch {
		if m.Err == nil {
			if order == sinks.ByLane && len(events) > 0 {
				t.Fatalf("%s was acknowledged although %s before it on its lane was not",
					m.Event.ID, events[0].ID)
			}
			continue
		}
		if class := sinks.Classify(m.Err); class != sinks.Retry && class != sinks.Reconnect {
			t.Fatalf("publish %s: %v (%s), want stored, retry or reconnect", m.Event.ID, m.Err,
				class)
		}
		events = append(events, m.Event)
	}
	return events
}

// call is one Publish call with all of the events.
func call(ctx context.Context, sink sinks.Sink, events ...*event.Event) []*sinks.Message {
	batch := make([]*sinks.Message, len(events))
	for i, e := range events {
		batch[i] = &sinks.Message{Event: e}
	}
	sink.Publish(ctx, batch)
	return batch
}
