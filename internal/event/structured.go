package event

import "github.com/go-json-experiment/json/jsontext"

// StructuredContentType marks a message whose payload is the whole event.
const StructuredContentType = "application/cloudevents+json"

// AppendStructured appends the event in CloudEvents' JSON format: attributes as members, the
// payload as "data", byte for byte. Booleans (initial, inferred) are written as strings, which is
// what their attribute values are on every binary binding; a reader gets the same event either way.
func AppendStructured(dst []byte, e *Event) []byte {
	dst = append(dst, '{')
	first := true
	e.Each(func(name, value string) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, name...) // attribute names are a-z0-9: nothing to quote
		dst = append(dst, `":`...)
		dst = appendString(dst, value)
	})
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, '}')
}

// appendString quotes a value. AppendQuote fails only on invalid UTF-8, which it has replaced by
// then.
func appendString(dst []byte, value string) []byte {
	dst, _ = jsontext.AppendQuote(dst, value)
	return dst
}
