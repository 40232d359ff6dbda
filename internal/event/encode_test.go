package event_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

func token(value string) string { return string(event.AppendSubjectToken(nil, value)) }
func part(value string) string  { return string(event.AppendTopicPart(nil, value)) }

func TestSubjectTokens(t *testing.T) {
	for value, want := range map[string]string{
		"web":                  "web",
		"":                     "-",
		"-":                    "%2D",
		"--":                   "--",
		"my.crd.example.com":   "my_crd_example_com",
		"my_crd":               "my%5Fcrd",
		"100%":                 "100%25",
		"%2D":                  "%252D",
		"_":                    "%5F",
		".":                    "%2E",
		".deadletter":          "%2Edeadletter",
		"a..b":                 "a__b",
		"system:node":          "system:node",
		"a b\t>*":              "a%20b%09%3E%2A",
		"é":                    "%C3%A9",
		"\x00\x7f\xff":         "%00%7F%FF",
		"UPPER/path":           "UPPER/path",
		"arn:aws:eks:eu-1:1:x": "arn:aws:eks:eu-1:1:x",
	} {
		if got := token(value); got != want {
			t.Errorf("%q became %q, want %q", value, got, want)
		}
	}
}

func TestTopicParts(t *testing.T) {
	for value, want := range map[string]string{
		"deployments":  "deployments",
		"":             "-",
		"-":            "_2D",
		"--":           "--",
		"a.example":    "a.example",
		"a_b":          "a_5Fb",
		"_2D":          "_5F2D",
		"system:node":  "system_3Anode",
		"é":            "_C3_A9",
		"a b%":         "a_20b_25",
		"\x00\x7f\xff": "_00_7F_FF",
	} {
		if got := part(value); got != want {
			t.Errorf("%q became %q, want %q", value, got, want)
		}
	}
}

// unescape undoes an encoding, so that a round trip proves that two values never meet. "-" stands
// for no value.
func unescape(t *testing.T, text string, escape byte, plain func(c byte) byte) string {
	t.Helper()
	if text == "-" {
		return ""
	}
	var value []byte
	for i := 0; i < len(text); i++ {
		if text[i] != escape {
			value = append(value, plain(text[i]))
			continue
		}
		if i+2 >= len(text) {
			t.Fatalf("%q ends within an escape", text)
		}
		c, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		value = append(value, byte(c))
		i += 2
	}
	return string(value)
}

func decodeToken(t *testing.T, text string) string {
	return unescape(t, text, '%', func(c byte) byte {
		if c == '_' {
			return '.'
		}
		return c
	})
}

var (
	validToken = regexp.MustCompile(`^[!-~]+$`)
	validTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

func checkToken(t *testing.T, text string) {
	t.Helper()
	if !validToken.MatchString(text) || strings.ContainsAny(text, ".*>") || text[0] == '_' {
		t.Errorf("%q is not a valid NATS token", text)
	}
}

func seedValues(f *testing.F) {
	for _, value := range []string{"", "-", "_", ".", "%", "web", "a.b", "a_b", "a%2Eb", "%2D", "_2D", "a b", "*", ">", "é", "\xff", "\x00"} {
		f.Add(value)
	}
}

func FuzzSubjectToken(f *testing.F) {
	seedValues(f)
	f.Fuzz(func(t *testing.T, value string) {
		text := token(value)
		checkToken(t, text)
		if got := decodeToken(t, text); got != value {
			t.Errorf("%q became %q, which reads as %q", value, text, got)
		}
	})
}

// FuzzKeyToken reads a token of a key as others may have written it in a bucket, and writes any
// value as one. Two values never meet, and nothing but what was written is read.
func FuzzKeyToken(f *testing.F) {
	seedValues(f)
	for _, token := range []string{"=2E", "=2e", "=", "=4", "=ZZ", "a=2Db", "=41", "--"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key := string(event.AppendKeyToken(nil, text))
		if !validKey.MatchString(key) || key[0] == '_' {
			t.Errorf("%q became %q, which can't be part of a key", text, key)
		}
		if len(key) > max(1, 3*len(text)) {
			t.Errorf("%d bytes became %d", len(text), len(key))
		}
		if value, ok := event.ParseKeyToken(key); !ok || value != text {
			t.Errorf("%q became %q, which reads as %q", text, key, value)
		}
		if value, ok := event.ParseKeyToken(text); ok && string(event.AppendKeyToken(nil, value)) != text {
			t.Errorf("%q reads as %q, which is written in another way", text, value)
		}
	})
}

// validKey is what a token of a key in a bucket may hold, but for "/", which is in none.
var validKey = regexp.MustCompile(`^[-_=0-9A-Za-z]+$`)

func FuzzTopicPart(f *testing.F) {
	seedValues(f)
	f.Fuzz(func(t *testing.T, value string) {
		text := part(value)
		if !validTopic.MatchString(text) {
			t.Errorf("%q can't be part of a topic", text)
		}
		if got := unescape(t, text, '_', func(c byte) byte { return c }); got != value {
			t.Errorf("%q became %q, which reads as %q", value, text, got)
		}
	})
}
