package event_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

// The examples are those of the protocol bindings.
func TestHeaderValue(t *testing.T) {
	for value, want := range map[string]string{
		"plain/value-1": "plain/value-1",
		"Euro € 😀":      "Euro%20%E2%82%AC%20%F0%9F%98%80",
		`say "50%"`:     "say%20%2250%25%22",
		"a\r\nb\x7f":    "a%0D%0Ab%7F",
		"!~":            "!~",
		"":              "",
	} {
		if got := event.HeaderValue(value); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

// What must be encoded is looked for in eight bytes at once, so it is put into each place of values
// of many lengths.
func TestHeaderValueBytes(t *testing.T) {
	for length := 1; length <= 20; length++ {
		for at := range length {
			for c := range 256 {
				value := []byte(strings.Repeat("~", length))
				value[at] = byte(c)
				want := string(value)
				if c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
					want = fmt.Sprintf("%s%%%02X%s", value[:at], c, value[at+1:])
				}
				if got := event.HeaderValue(string(value)); got != want {
					t.Fatalf("%q: got %q, want %q", value, got, want)
				}
			}
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	f.Add(`a "b" 100% Ω`)
	f.Fuzz(func(t *testing.T, value string) {
		encoded := event.HeaderValue(value)
		for i := range len(encoded) {
			if c := encoded[i]; c <= ' ' || c > '~' || c == '"' {
				t.Fatalf("%q has %q in it", encoded, c)
			}
		}
		if got, err := url.PathUnescape(encoded); err != nil || got != value {
			t.Errorf("%q decodes to %q, %v", encoded, got, err)
		}
	})
}
