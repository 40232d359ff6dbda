package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/go-json-experiment/json/jsontext"
)

// Message is a message of NATS or Kafka, or a JSON document, as the CloudEvents SDK reads messages.
// It shares memory with what it was made of, and can be used again for another.
type Message struct {
	attributes   []Attribute // of binary mode
	names        []string    // of the headers of NATS
	isEvent      bool        // the attributes have the version of CloudEvents
	isStructured bool
	data         []byte
	err          error // of a header
}

var (
	_ binding.Message               = (*Message)(nil)
	_ binding.MessageMetadataReader = (*Message)(nil)
)

// errNoEvent is of a message that is no event of CloudEvents 1.0.
var errNoEvent = errors.New("it is no CloudEvent 1.0")

// ReadDocument makes m a document in CloudEvents' JSON format, or a flat record, and returns it.
func (m *Message) ReadDocument(document []byte) *Message {
	*m = Message{isStructured: true, data: document, attributes: m.attributes[:0]}
	if isRecord(document) {
		m.readRecord()
	}
	return m
}

// ReadNATS makes m a message of NATS, and returns it. The names of headers have any case. Of two
// that are the same attribute, one is taken, and always the same.
func (m *Message) ReadNATS(header map[string][]string, data []byte) *Message {
	*m = Message{data: data, attributes: m.attributes[:0], names: m.names[:0]}
	isFlat := false
	for name := range header {
		m.names = append(m.names, name)
	}
	slices.Sort(m.names)
	for _, name := range m.names {
		if len(header[name]) == 0 {
			continue
		}
		value := header[name][0]
		name = strings.ToLower(name)
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
			value, err := parseHeaderValue(value)
			if err != nil {
				m.err = fmt.Errorf("header %s: %w", name, err)
			}
			m.add(attribute, value)
		} else if name == "content-type" {
			m.isStructured, isFlat = isStructured(value), strings.HasPrefix(value, FlatContentType)
		}
	}
	if isFlat {
		m.readRecord()
	}
	return m
}

// ReadKafka makes m a record of Kafka, and returns it.
func (m *Message) ReadKafka(headers iter.Seq2[string, []byte], value []byte) *Message {
	*m = Message{data: value, attributes: m.attributes[:0]}
	isFlat := false
	for name, value := range headers {
		name = strings.ToLower(name)
		if attribute, ok := strings.CutPrefix(name, "ce_"); ok {
			m.add(attribute, string(value))
		} else if name == "content-type" {
			m.isStructured = isStructured(string(value))
			isFlat = strings.HasPrefix(string(value), FlatContentType)
			m.add("datacontenttype", string(value))
		}
	}
	if isFlat {
		m.readRecord()
	}
	return m
}

func isStructured(contentType string) bool { return format.Lookup(contentType) == format.JSON }

func (m *Message) add(name, value string) {
	m.isEvent = m.isEvent || name == "specversion" && value == SpecVersion
	m.attributes = append(m.attributes, Attribute{name, value})
}

// ReadEncoding implements binding.MessageReader.
func (m *Message) ReadEncoding() binding.Encoding {
	switch {
	case m.isStructured:
		return binding.EncodingStructured
	case m.isEvent:
		return binding.EncodingBinary
	}
	return binding.EncodingUnknown
}

// ReadStructured implements binding.MessageReader.
func (m *Message) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if !m.isStructured {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, jsonFormat{}, bytes.NewReader(m.data))
}

// ReadBinary implements binding.MessageReader.
func (m *Message) ReadBinary(_ context.Context, w binding.BinaryWriter) (err error) {
	if m.isStructured || !m.isEvent {
		return binding.ErrNotBinary
	}
	if m.err != nil {
		return m.err
	}
	for _, a := range m.attributes {
		if attribute := spec.V1.Attribute(a.Name); attribute != nil {
			err = w.SetAttribute(attribute, a.Value)
		} else {
			err = w.SetExtension(a.Name, a.Value)
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", a.Name, err)
		}
	}
	return w.SetData(bytes.NewBuffer(m.data))
}

// GetAttribute implements binding.MessageMetadataReader.
func (m *Message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := spec.V1.AttributeFromKind(kind)
	return attribute, m.GetExtension(attribute.Name())
}

// GetExtension implements binding.MessageMetadataReader.
func (m *Message) GetExtension(name string) any {
	for _, a := range m.attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return nil
}

// Finish implements binding.Message. There is nothing to do.
func (m *Message) Finish(error) error { return nil }

// CloudEvent returns the event that a message is, as the SDK has it.
func (m *Message) CloudEvent() (*cloudevents.Event, error) {
	e, err := binding.ToEvent(context.Background(), m)
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoEvent, err)
	}
	return e, nil
}

// Event returns the event that a message is, as the SDK reads it.
func (m *Message) Event() (e Event, err error) {
	from, err := m.CloudEvent()
	if err != nil {
		return e, err
	}
	if m.isStructured && !hasJSON(from) {
		return e, errNoJSON
	}
	return fromCloudEvent(from)
}

// ParseStructured reads an event in CloudEvents' JSON format, as AppendStructured writes it.
func ParseStructured(document []byte) (Event, error) {
	return new(Message).ReadDocument(document).Event()
}

// CloudEvent returns the event as the SDK has it.
func (e *Event) CloudEvent() (*cloudevents.Event, error) {
	m := &Message{data: e.Data}
	e.Each(func(name, value string) { m.add(name, strings.ToValidUTF8(value, "\ufffd")) })
	return m.CloudEvent()
}

// MarshalCloudEvent writes an event of the SDK in CloudEvents' JSON format.
func MarshalCloudEvent(e *cloudevents.Event) ([]byte, error) { return jsonFormat{}.Marshal(e) }

// hasJSON reports whether the data of an event that was read from a document is JSON. It may have
// been a text there, or in base64.
func hasJSON(e *cloudevents.Event) bool {
	if e.DataBase64 {
		return jsontext.Value(e.Data()).IsValid()
	}
	return len(e.Data()) == 0 || isJSON(e.DataMediaType())
}

// isJSON reports whether data of a media type is JSON (section 3.1.1 of the JSON format).
func isJSON(media string) bool {
	return media == "" || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// fromCloudEvent makes the fields of an event of the SDK.
func fromCloudEvent(from *cloudevents.Event) (e Event, err error) {
	c, ok := from.Context.(*cloudevents.EventContextV1)
	if !ok {
		return e, fmt.Errorf("%w: its specversion is %s", errNoEvent, from.SpecVersion())
	}
	set := func(name string, value any) {
		text, formatErr := types.Format(value)
		if formatErr != nil || !utf8.ValidString(text) {
			err = fmt.Errorf("attribute %s has no text", name)
		} else {
			err = e.Set(name, text)
		}
	}
	for _, a := range spec.V1.Attributes() {
		if value := a.Get(c); value != nil && err == nil {
			set(a.Name(), value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		if err == nil {
			set(name, c.Extensions[name])
		}
	}
	e.Data = from.Data()
	return e, err
}

// quotedPair is a character that a backslash escapes in a quoted string (RFC 7230, section 3.2.6).
var quotedPair = regexp.MustCompile(`\\(.)`)

// parseHeaderValue is the reverse of HeaderValue. It also takes quoted strings, which older
// versions of the bindings have allowed.
func parseHeaderValue(text string) (string, error) {
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		text = quotedPair.ReplaceAllString(text[1:n-1], "$1")
	}
	if strings.IndexByte(text, '%') < 0 {
		return text, nil
	}
	value, err := url.PathUnescape(text)
	if err == nil && !utf8.ValidString(value) {
		err = errors.New("its percent-encoding is not of UTF-8")
	}
	return value, err
}

// jsonFormat is the SDK's JSON format, which takes data for JSON where its media type says so. The
// SDK wants a text for what ends with +json, as a merge patch (sdk-go#797).
type jsonFormat struct{}

var _ format.Format = jsonFormat{}

// MediaType is that of the format.
func (jsonFormat) MediaType() string { return StructuredContentType }

// isRight reports whether the SDK is right about what data of an event's media type is.
func isRight(e *cloudevents.Event) bool {
	media := e.DataMediaType()
	return !isJSON(media) || media == "" || media == ContentType || media == "text/json"
}

// Unmarshal reads a document.
func (jsonFormat) Unmarshal(document []byte, e *cloudevents.Event) error {
	err := format.JSON.Unmarshal(document, e)
	if e.Context == nil || isRight(e) {
		return err
	}
	begin, end := memberData(document)
	if end == 0 {
		return err
	}
	*e = cloudevents.New()
	err = format.JSON.Unmarshal(slices.Concat(document[:begin], []byte("null"), document[end:]), e)
	e.DataEncoded = bytes.Clone(document[begin:end])
	return err
}

// Marshal writes a document. The SDK's own format would change the bytes of the data.
func (jsonFormat) Marshal(e *cloudevents.Event) ([]byte, error) {
	var out bytes.Buffer
	if isRight(e) || e.DataBase64 || len(e.DataEncoded) == 0 {
		err := cloudevents.WriteJson(e, &out)
		return out.Bytes(), err
	}
	bare := *e
	bare.DataEncoded = nil
	err := cloudevents.WriteJson(&bare, &out)
	head := bytes.TrimSuffix(out.Bytes(), []byte("}"))
	return slices.Concat(head, []byte(`,"data":`), e.DataEncoded, []byte("}")), err
}

// memberData returns where in a document the value of its member data is; 0, 0 where it has none.
func memberData(document []byte) (begin, end int) {
	in := jsontext.NewDecoder(bytes.NewReader(document))
	if _, err := in.ReadToken(); err != nil {
		return 0, 0
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return 0, 0
		}
		isData := name.String() == "data"
		value, err := in.ReadValue()
		if err != nil {
			return 0, 0
		}
		if isData {
			end = int(in.InputOffset())
			return end - len(value), end
		}
	}
	return 0, 0
}
