package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokerMessage is a message of NATS or Kafka as the CloudEvents SDK reads messages.
type brokerMessage struct {
	attributes   map[string]string // of binary mode, specversion among them
	isStructured bool
	data         []byte
	err          error // of a header
}

var (
	_ binding.Message               = (*brokerMessage)(nil)
	_ binding.MessageMetadataReader = (*brokerMessage)(nil)
)

// fromNATS reads the headers of a message. They have any case.
func fromNATS(msg jetstream.Msg) *brokerMessage {
	m, contentType := &brokerMessage{attributes: map[string]string{}, data: msg.Data()}, ""
	for name, values := range msg.Headers() {
		if len(values) == 0 {
			continue
		}
		name = strings.ToLower(name)
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
			text, err := headerValue(values[0])
			if err != nil {
				m.err = fmt.Errorf("header %s: %w", name, err)
			}
			m.attributes[attribute] = text
		} else if name == "content-type" {
			contentType = values[0]
		}
	}
	m.setContentType(contentType)
	return m
}

// quotedPair is a character that a backslash escapes in a quoted string (RFC 7230, section 3.2.6).
var quotedPair = regexp.MustCompile(`\\(.)`)

// headerValue decodes the value of a header, as the binding of NATS says.
func headerValue(text string) (string, error) {
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		text = quotedPair.ReplaceAllString(text[1:n-1], "$1")
	}
	value, err := url.PathUnescape(text)
	if err == nil && !utf8.ValidString(value) {
		err = errors.New("its percent-encoding is not of UTF-8")
	}
	return value, err
}

// fromKafka reads the headers of a record.
func fromKafka(record *kgo.Record) *brokerMessage {
	m, contentType := &brokerMessage{attributes: map[string]string{}, data: record.Value}, ""
	for _, h := range record.Headers {
		name := strings.ToLower(h.Key)
		if attribute, ok := strings.CutPrefix(name, "ce_"); ok {
			m.attributes[attribute] = string(h.Value)
		} else if name == "content-type" {
			contentType = string(h.Value)
			m.attributes["datacontenttype"] = contentType
		}
	}
	m.setContentType(contentType)
	return m
}

// setContentType sets how the event is in the message.
func (m *brokerMessage) setContentType(contentType string) {
	m.isStructured = format.Lookup(contentType) == format.JSON
	if strings.HasPrefix(contentType, "application/vnd.kubebridge.flat+json") {
		m.attributes = map[string]string{"specversion": cloudevents.CloudEventsVersionV1}
		m.err = m.readRecord()
	}
}

// readRecord makes the columns of a flat record attributes of binary mode. An empty text, null or
// false is none, and some columns repeat what an attribute says.
func (m *brokerMessage) readRecord() error {
	var columns map[string]any
	if err := json.Unmarshal(m.data, &columns); err != nil {
		return err
	}
	m.data = nil
	for name, value := range columns {
		switch value := value.(type) {
		case nil:
		case bool:
			if value {
				m.attributes[name] = "true"
			}
		case string:
			if name == "data" {
				m.data = []byte(value)
			} else if value != "" {
				m.attributes[name] = value
			}
		default:
			return fmt.Errorf("column %s is no text", name)
		}
	}
	for _, name := range []string{"cluster", "apigroup", "op"} {
		delete(m.attributes, name)
	}
	return nil
}

// isEvent reports whether a message says that it is an event.
func (m *brokerMessage) isEvent() bool { return m.ReadEncoding() != binding.EncodingUnknown }

// event returns the event that a message is.
func (m *brokerMessage) event() (*Event, error) {
	e, err := binding.ToEvent(context.Background(), m)
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return nil, err
	}
	return &Event{Event: *e}, nil
}

// ReadEncoding implements binding.MessageReader.
func (m *brokerMessage) ReadEncoding() binding.Encoding {
	switch {
	case m.isStructured:
		return binding.EncodingStructured
	case m.attributes["specversion"] == cloudevents.CloudEventsVersionV1:
		return binding.EncodingBinary
	}
	return binding.EncodingUnknown
}

// ReadStructured implements binding.MessageReader.
func (m *brokerMessage) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if !m.isStructured {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, jsonFormat{format.JSON}, bytes.NewReader(m.data))
}

// ReadBinary implements binding.MessageReader.
func (m *brokerMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	err := m.err
	for name, value := range m.attributes {
		if err != nil {
			return err
		}
		if attribute := spec.V1.Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, value)
		} else {
			err = w.SetExtension(name, value)
		}
	}
	if err != nil {
		return err
	}
	return w.SetData(bytes.NewBuffer(m.data))
}

// GetAttribute implements binding.MessageMetadataReader.
func (m *brokerMessage) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := spec.V1.AttributeFromKind(kind)
	return attribute, m.GetExtension(attribute.Name())
}

// GetExtension implements binding.MessageMetadataReader.
func (m *brokerMessage) GetExtension(name string) any {
	if value, ok := m.attributes[name]; ok {
		return value
	}
	return nil
}

// Finish implements binding.Message. There is nothing to do.
func (*brokerMessage) Finish(error) error { return nil }

// jsonFormat is the SDK's JSON format, which also takes data for JSON whose media type ends with
// +json, as that of a merge patch does. The SDK wants a string there (sdk-go#797).
type jsonFormat struct{ format.Format }

// Unmarshal reads a document.
func (f jsonFormat) Unmarshal(document []byte, e *cloudevents.Event) error {
	err := f.Format.Unmarshal(document, e)
	if e.Context == nil || !strings.HasSuffix(e.DataMediaType(), "+json") {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return err
	}
	data, ok := members["data"]
	if !ok {
		return err
	}
	delete(members, "data")
	if document, err = json.Marshal(members); err != nil {
		return err
	}
	*e = cloudevents.New()
	err = f.Format.Unmarshal(document, e)
	e.DataEncoded = data
	return err
}
