package event

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

// Set sets an attribute by its name, as Each gives it. Attributes that the bridge does not know
// become Extensions. The fields for routing are set as far as attributes give them.
func (e *Event) Set(name, value string) error {
	if field := e.text(name); field != nil {
		*field = value
		return nil
	}
	switch name {
	case "specversion":
		if value != SpecVersion {
			return fmt.Errorf("specversion is %q, want %s", value, SpecVersion)
		}
	case "type":
		e.Type, e.Op = value, opOf(value)
	case "time":
		return setTime(&e.Time, name, value)
	case "notbefore":
		return setTime(&e.NotBefore, name, value)
	case "apiversion":
		e.APIVersion = value
		group, version, found := strings.Cut(value, "/")
		if !found {
			group, version = "", value
		}
		e.Group, e.Version = group, version
	case "initial":
		e.Initial = value == "true"
	case "inferred":
		e.Inferred = value == "true"
	default:
		if !isAttributeName(name) {
			return fmt.Errorf("attribute %q: want letters a to z and digits", name)
		}
		e.Extensions = append(e.Extensions, Attribute{name, value})
	}
	return nil
}

func setTime(field *time.Time, name, value string) error {
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return fmt.Errorf("%s %q is not RFC 3339", name, value)
	}
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return fmt.Errorf("%s %q is not RFC 3339 in UTC", name, value)
	}
	*field = t
	return nil
}

// isAttributeName reports whether CloudEvents allows a name. Names are written as they are: one
// with a quote in it, in a forged dead letter, would write attributes of its own.
func isAttributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// text returns the field of an attribute that is a text and nothing more; nil for any other.
func (e *Event) text(name string) *string {
	switch name {
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "subject":
		return &e.Subject
	case "datacontenttype":
		return &e.DataType
	case "partitionkey":
		return &e.PartitionKey
	case "sequence":
		return &e.Sequence
	case "kind":
		return &e.Kind
	case "informer":
		return &e.Informer
	case "resource":
		return &e.Resource
	case "namespace":
		return &e.Namespace
	case "name":
		return &e.Name
	case "uid":
		return &e.UID
	case "resourceversion":
		return &e.ResourceVersion
	case "previous":
		return &e.Previous
	case "changed":
		return &e.Changed
	case "timesource":
		return &e.TimeSource
	case "manager":
		return &e.Manager
	case "managersubresource":
		return &e.ManagerSubresource
	case "manageroperation":
		return &e.ManagerOperation
	case "lastmanager":
		return &e.LastManager
	case "cause":
		return &e.Cause
	case "traceparent":
		return &e.TraceParent
	}
	return nil
}

// Prefixes of the types of events that the bridge sends.
const (
	resourcePrefix = "dev.kubebridge.resource."
	informerPrefix = "dev.kubebridge.informer."
	knativePrefix  = "dev.knative.apiserver."
)

// AboutInformer reports whether the event is about an informer rather than an object.
func (e *Event) AboutInformer() bool { return strings.HasPrefix(e.Type, informerPrefix) }

// opOf returns the op of a type; "" for a type that the bridge does not send.
func opOf(typ string) Op {
	if word, ok := strings.CutPrefix(typ, resourcePrefix); ok {
		return Op(word)
	}
	if word, ok := strings.CutPrefix(typ, informerPrefix); ok {
		return Op(word)
	}
	if mode, ok := strings.CutPrefix(typ, knativePrefix); ok {
		_, word, _ := strings.Cut(mode, ".")
		for op, knative := range knativeOps {
			if word == knative {
				return op
			}
		}
	}
	return ""
}

var errNoJSON = errors.New("its data is no JSON")

// quarantinedData is the payload of a quarantined event.
type quarantinedData struct {
	Reason string `json:"reason"`
	// Key of the object, where it is known: <namespace>/<name>.
	Key     string `json:"key,omitempty"`
	Message string `json:"message,omitempty"`
	// Size is how many bytes were read; Partial that there are more.
	Size    int  `json:"size"`
	Partial bool `json:"partial,omitempty"`
	// SHA256 of what was read, or Fingerprint, under the bridge's own key, where the bytes may hold
	// secrets.
	SHA256      string `json:"sha256,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Raw is the first 256 KiB, in base64; none where the bytes may hold secrets.
	Raw  []byte `json:"raw,omitempty"`
	Note string `json:"note"`
}

// Quarantined makes the event that reports something which the API server sent and the bridge
// can't understand. Where the object is known, its partition key keeps the event in order with the
// object's.
func (m *Maker) Quarantined(u *resource.Unreadable, era IDSuffix, observed time.Time) Event {
	e := m.about("quarantined", Quarantined, era.appendTo(u.ID()), observed)
	if u.Key != "" {
		namespace, name := u.Key.Split()
		e.PartitionKey = m.prefixes.partitionKey(namespace, name)
		e.CompactionKey += "/" + string(u.Key)
	}
	data := quarantinedData{
		Reason: u.Reason, Key: string(u.Key), Message: u.Message, Size: u.Size, Partial: u.Partial,
		SHA256: u.Digest, Raw: u.Raw,
		Note: quarantineText(u),
	}
	if u.Withheld {
		data.SHA256, data.Fingerprint = "", u.Digest
	}
	if m.cfg.Payload == PayloadDebezium {
		data.Raw = nil // an attribute has no room for it
	}
	m.report(&e, data)
	return e
}

// quarantineText says what follows for a consumer.
func quarantineText(u *resource.Unreadable) string {
	const what = "the API server sent what can't be understood: "
	switch {
	case u.Listed && u.Key == "":
		return what + "an item of a list, and it is unknown which object it is; the list " +
			"continues behind it, and nothing is taken for deleted by it"
	case u.Listed, u.Version != "":
		return what + "a state of this object; it counts as what it was before until a state of it can " +
			"be understood, or it is deleted; all else continues"
	default:
		return what + "a list of everything follows, and what differs is reported after a gap event"
	}
}

// Decode is Event for readers of whole streams: the SDK takes many times as long. It reads what
// the SDK takes as it is, which is all that the bridge writes, and leaves the rest to the SDK.
// Data is a part of the message.
func (m *Message) Decode() (Event, error) {
	if e, ok := m.plain(); ok {
		return e, nil
	}
	return m.Event()
}

// plain reads an event whose values the SDK takes as they are; ok is false for any other message.
func (m *Message) plain() (e Event, ok bool) {
	switch {
	case m.isStructured:
		ok = e.setDocument(m.data)
	case m.isEvent && m.err == nil:
		ok = true
		for i := 0; ok && i < len(m.attributes); i++ {
			ok = e.setPlain(m.attributes[i].Name, m.attributes[i].Value)
		}
		e.Data = m.data
	}
	return e, ok && e.ID != "" && e.Source != "" && e.Type != ""
}

// setPlain sets an attribute. It reports whether the SDK does the same.
func (e *Event) setPlain(name, value string) bool {
	switch name {
	case "id", "type", "subject":
		if value == "" || isSpace(value[0]) || isSpace(value[len(value)-1]) {
			return false // spaces at the ends are cut
		}
	case "source":
		if !isPlainPath(value) {
			return false // it is parsed
		}
	case "datacontenttype":
		if value != ContentType && value != MergePatchContentType {
			return false
		}
	case "data", "dataschema":
		return false
	}
	extensions := len(e.Extensions)
	if !utf8.ValidString(value) || e.Set(name, value) != nil {
		return false
	}
	for _, a := range e.Extensions[:extensions] {
		if a.Name == name && len(e.Extensions) > extensions {
			return false // the last one counts
		}
	}
	return true
}

// isSpace reports whether a byte may be of a space.
func isSpace(c byte) bool { return c <= ' ' || c >= 0x7f }

// isPlainPath reports whether a source is an absolute path in which nothing is encoded.
func isPlainPath(source string) bool {
	return len(source) > 1 && source[0] == '/' && source[1] != '/' &&
		strings.Trim(source, "/-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// setDocument sets the members of a document. It reports whether the SDK does the same.
func (e *Event) setDocument(document []byte) bool {
	in := jsontext.NewDecoder(bytes.NewReader(document))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return false
	}
	isEvent := false
	for in.PeekKind() == '"' {
		token, err := in.ReadToken()
		if err != nil {
			return false
		}
		name := token.String()
		value, err := in.ReadValue()
		if err != nil {
			return false
		}
		if name == "data" {
			end := int(in.InputOffset())
			begin := end - len(value)
			e.Data = document[begin:end:end]
			if document[begin-1] != ':' {
				return false
			}
			continue
		}
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil || value.Kind() != '"' || !e.setPlain(name, string(text)) {
			return false
		}
		isEvent = isEvent || name == "specversion"
	}
	if _, err := in.ReadToken(); err != nil {
		return false
	}
	_, err := in.ReadToken()
	return isEvent && errors.Is(err, io.EOF)
}
