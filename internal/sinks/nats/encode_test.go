package nats_test

import (
	"net/url"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// The examples are those of the NATS protocol binding.
func TestHeaderValuesAreEncodedAsTheBindingSays(t *testing.T) {
	for value, want := range map[string]string{
		"plain/value-1": "plain/value-1",
		"Euro € 😀":      "Euro%20%E2%82%AC%20%F0%9F%98%80",
		`say "50%"`:     "say%20%2250%25%22",
		"a\r\nb\x7f":    "a%0D%0Ab%7F",
		"!~":            "!~",
		"":              "",
	} {
		if got := nats.PercentEncode(value); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func FuzzEncodedHeaderValuesAreVisibleASCIIAndDecode(f *testing.F) {
	f.Add(`a "b" 100% Ω`)
	f.Fuzz(func(t *testing.T, value string) {
		encoded := nats.PercentEncode(value)
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
