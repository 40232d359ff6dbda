package event

import (
	"cmp"
	"encoding/binary"
	"strings"
	"time"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

const hexDigits = "0123456789ABCDEF"

// AppendSubjectToken appends a value as one token of a NATS subject, so that two values never meet:
// "" becomes "-", and "." becomes "_". What a token may not hold, or what would be read as one of
// these two or as an escape, becomes %XX. A leading "." does too, so that no token begins with "_":
// such tokens are the bridge's own.
func AppendSubjectToken(dst []byte, value string) []byte {
	if value == "" {
		return append(dst, '-')
	}
	if value == "-" {
		return append(dst, "%2D"...)
	}
	for i := range len(value) {
		switch c := value[i]; {
		case c == '.' && i > 0:
			dst = append(dst, '_')
		case c <= ' ' || c == '.' || c >= 0x7f || c == '*' || c == '>' || c == '%' || c == '_':
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// AppendKeyToken appends a value as one token of a key in a JetStream key-value bucket, so that two
// values never meet. It is AppendSubjectToken within what such a key may hold, which is letters,
// digits and - / _ = besides the dots between tokens: "=" begins a code, where a subject has "%".
func AppendKeyToken(dst []byte, value string) []byte {
	switch value {
	case "":
		return append(dst, '-')
	case "-":
		return append(dst, "=2D"...)
	}
	for i := range len(value) {
		c := value[i]
		switch {
		case c == '.' && i > 0:
			dst = append(dst, '_')
		case c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			dst = append(dst, c)
		default:
			dst = append(dst, '=', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}

// ParseKeyToken returns the value that AppendKeyToken has made a token of. ok is false for any
// other text.
func ParseKeyToken(token string) (value string, ok bool) {
	if token == "-" {
		return "", true
	}
	out := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		switch c := token[i]; {
		case c == '_':
			out = append(out, '.')
		case c == '=' && i+2 < len(token):
			high, low := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			out = append(out, byte(high<<4|low))
			i += 2
		default:
			out = append(out, c)
		}
	}
	value = string(out)
	return value, string(AppendKeyToken(nil, value)) == token
}

// AppendTopicPart appends a value as part of a Kafka topic name, so that two values never meet.
// Kafka takes letters, digits, ".", "_" and "-", and treats "." and "_" as the same in metrics;
// everything else becomes _XX, and "_" itself _5F.
func AppendTopicPart(dst []byte, value string) []byte {
	if value == "" {
		return append(dst, '-')
	}
	if value == "-" {
		return append(dst, "_2D"...)
	}
	for i := range len(value) {
		c := value[i]
		if c == '.' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '_', hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// SpecVersion is the CloudEvents version of every event.
const SpecVersion = "1.0"

// Each calls yield for every attribute that is set, specversion first, in a fixed order, with the
// value in its canonical CloudEvents string form. datacontenttype is among them when there is a
// payload. The time is UTC, RFC 3339.
func (e *Event) Each(yield func(name, value string)) {
	put := func(name, value string) {
		if value != "" {
			yield(name, value)
		}
	}
	put("specversion", SpecVersion)
	put("id", e.ID)
	put("source", e.Source)
	put("type", e.Type)
	put("subject", e.Subject)
	if !e.Time.IsZero() {
		put("time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	put("timesource", e.TimeSource)
	if !e.NotBefore.IsZero() {
		put("notbefore", e.NotBefore.UTC().Format(time.RFC3339Nano))
	}
	if len(e.Data) > 0 || e.DataType != "" {
		put("datacontenttype", cmp.Or(e.DataType, ContentType))
	}
	put("partitionkey", e.PartitionKey)
	put("sequence", e.Sequence)
	put("apiversion", e.APIVersion)
	put("kind", e.Kind)
	put("informer", e.Informer)
	put("resource", e.Resource)
	put("namespace", e.Namespace)
	put("name", e.Name)
	put("uid", e.UID)
	put("resourceversion", e.ResourceVersion)
	put("previous", e.Previous)
	put("changed", e.Changed)
	put("manager", e.Manager)
	put("managersubresource", e.ManagerSubresource)
	put("manageroperation", e.ManagerOperation)
	put("lastmanager", e.LastManager)
	put("cause", e.Cause)
	if e.Initial {
		put("initial", "true")
	}
	if e.Inferred {
		put("inferred", "true")
	}
	put("traceparent", e.TraceParent)
	for _, a := range e.Extensions {
		put(a.Name, a.Value)
	}
}

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

// HeaderValue encodes the value of an attribute as the HTTP and NATS protocol bindings of
// CloudEvents ask: space, double quote, percent and everything outside U+0021 to U+007E, as UTF-8
// bytes.
func HeaderValue(value string) string {
	if !mayEncode(value) {
		return value
	}
	extra := 0
	for i := range len(value) {
		if encoded[value[i]] {
			extra += 2
		}
	}
	if extra == 0 {
		return value
	}
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(value)+extra)
	for i := range len(value) {
		if c := value[i]; encoded[c] {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

// mayEncode reports whether something in a value has to be encoded. It looks at eight bytes at
// once, and marks those that must by their highest bits. A byte outside ASCII has that bit set, DEL
// gets it from the addition, the others from a subtraction that borrows. A borrow can mark the byte
// above too, but then one is marked rightly.
func mayEncode(value string) bool {
	const ones, highs, word = 0x0101010101010101, 0x8080808080808080, 8
	if len(value) < word {
		for i := range len(value) {
			if encoded[value[i]] {
				return true
			}
		}
		return false
	}
	bytes := unsafe.Slice(unsafe.StringData(value), len(value))
	marks := uint64(0)
	for at := 0; ; at += word {
		at = min(at, len(bytes)-word) // the last word overlaps the one before
		w := binary.LittleEndian.Uint64(bytes[at:])
		quotes, percents := w^ones*'"', w^ones*'%'
		marks |= w | (w + ones) | (w - ones*'!') | (quotes - ones) | (percents - ones)
		if at == len(bytes)-word {
			return marks&highs != 0
		}
	}
}

// encoded has for each byte whether it must be encoded.
var encoded = func() (must [256]bool) {
	for c := range must {
		must[c] = c <= ' ' || c >= 0x7f || c == '"' || c == '%'
	}
	return must
}()
