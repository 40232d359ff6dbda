package nats_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"strings"
	"testing"

	natsclient "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// A message is made in the memory of the one before, which had other headers.
func TestEncoderReuse(t *testing.T) {
	encode := nats.NewEncoder()
	for n := range 2000 {
		e := anEvent(n)
		encoding := []string{nats.Binary, nats.Binary, nats.Binary, nats.Structured}[rand.IntN(4)]
		want := natsclient.Header{"Nats-Msg-Id": {e.MessageID()}}
		if encoding == nats.Structured {
			want["Content-Type"] = []string{event.StructuredContentType}
		} else {
			e.Each(func(name, value string) {
				want["ce-"+
					name] = []string{nats.PercentEncode(value)}
			})
		}
		size := len("NATS/1.0\r\n\r\n")
		for name, values := range want {
			size += len(name) + len(": \r\n") + len(values[0])
		}
		if msg, header := encode(e, encoding); !reflect.DeepEqual(msg.Header, want) ||
			header != size {
			t.Fatalf("event %d, %s: %d bytes of headers, want %d\n%v\n%v", n, encoding, header,
				size, msg.Header, want)
		}
	}
}

// anEvent has some attributes or not, by chance.
func anEvent(n int) *event.Event {
	e := sinktest.NewEvent(fmt.Sprintf("web-%d", n), n, 10)
	e.Initial, e.Inferred = rand.IntN(4) == 0, rand.IntN(4) == 0
	for _, value := range []*string{&e.Manager, &e.Cause, &e.Namespace, &e.TraceParent} {
		*value = []string{"", fmt.Sprintf("%d %%", n)}[rand.IntN(2)]
	}
	for i := range rand.IntN(3) {
		e.Extensions = append(e.Extensions, event.Attribute{
			Name:  fmt.Sprintf("own%d", (i+n)%5),
			Value: fmt.Sprint(n),
		})
	}
	return e
}

// The examples are those of the NATS protocol binding.
func TestHeaderValue(t *testing.T) {
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
				if got := nats.PercentEncode(string(value)); got != want {
					t.Fatalf("%q: got %q, want %q", value, got, want)
				}
			}
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
