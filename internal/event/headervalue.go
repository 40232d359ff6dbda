package event

import (
	"encoding/binary"
	"unsafe"
)

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
