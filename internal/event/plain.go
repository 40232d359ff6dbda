package event

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

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
