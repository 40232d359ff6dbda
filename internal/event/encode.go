package event

import "strings"

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

// ParseKeyToken is the value that AppendKeyToken has made a token of. ok is false for any other
// text.
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
