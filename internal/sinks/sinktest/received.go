package sinktest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

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
