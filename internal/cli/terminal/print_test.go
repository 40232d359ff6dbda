package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	kubeyaml "sigs.k8s.io/yaml"
)

// Bytes are printed for people.
func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB", 1536 << 20: "1.5 GiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%s: got %s, want %s", fmt.Sprint(n), got, want)
		}
	}
}

// TestTableIsPlain has what a terminal would obey in each column.
func TestTableIsPlain(t *testing.T) {
	var out strings.Builder
	table := NewTable(&out)
	fmt.Fprintln(table, "NAME\tREASON")
	fmt.Fprintln(table, "a\x1b[2J\tb\u202ec\u009d")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, `a\x1b[2J`) || !strings.Contains(got, `b\u202ec`) || strings.ContainsAny(got, "\x1b\u202e\u009d") {
		t.Errorf("%q", got)
	}
}

// readBack prints a value, reads it with a library, and returns what that read as JSON.
func readBack(t *testing.T, value any, read func(text []byte) (any, error)) (text, document []byte) {
	t.Helper()
	var out bytes.Buffer
	if err := PrintYAML(&out, value); err != nil {
		t.Fatalf("%+q: %v", value, err)
	}
	got, err := read(out.Bytes())
	if err != nil {
		t.Fatalf("%+q is printed as %q: %v", value, &out, err)
	}
	document, err = json.Marshal(got)
	if err != nil {
		t.Fatalf("%+q is printed as %q: %v", value, &out, err)
	}
	return out.Bytes(), document
}

// readers are kubectl's, of YAML 1.1, and one of 1.2.
var readers = map[string]func(text []byte) (any, error){
	"kubectl": func(text []byte) (value any, err error) { return value, kubeyaml.Unmarshal(text, &value) },
	"1.2":     func(text []byte) (value any, err error) { return value, yaml.Unmarshal(text, &value) },
}

func checkYAML(t *testing.T, value any) {
	t.Helper()
	want, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range readers {
		if text, got := readBack(t, value, read); !bytes.Equal(got, want) {
			t.Errorf("%s reads %s, and not %s, of %q", name, got, want, text)
		}
	}
}

var hostileTexts = []string{
	"", " ", "yes", "no", "on", "off", "y", "n", "Y", "N", "true", "null", "~", "=", "<<", "1", "0x1f", "1e3", "1_000", "0o7", "010",
	"1:20:30", "-190:20:30.15", ".inf", ".nan", "2001-12-14", "2001-12-14 21:59:43.10 -5", "a: b", "- a", "#", "a #b", "!a", "&a", "*a",
	"?", "? a", "|", ">", "%", "@", "`", "'", "\"", "{", "[", ",", "---", "...", "--- a", "\t", "\ta", "a\tb", "a\n", "\n", "\n\n", "a\nb",
	"a\n\tb\n", "\tif x\n\tthen y\n", "  a\nb", "a\n  b\n", "a \nb ", "a\n\n\nb\n\n", "a\r\nb", "\r", "\u0085", "a\u0085b", "\u2028", "\u2029",
	"\ufeff", "\x7f", "\x00", "\x1b[31m", "\u00a0", "\u202e", "\U0001f600", "\ufffd", "\uffff", "key:", "a:", ":a", "a\n#b", "a\n---\nb", "\n a",
	"123456789012345678901234567890123456789012345678901234567890123456789012345",
}

// What kubectl reads of what was printed is what was printed.
func TestYAMLReadsBack(t *testing.T) {
	all := map[string]any{}
	for _, s := range hostileTexts {
		checkYAML(t, s)
		checkYAML(t, map[string]any{s: s, "x": []any{s, map[string]any{"a": s}}})
		all[s] = s
	}
	checkYAML(t, all)
	checkYAML(t, map[string]any{"a": nil, "b": true, "c": []any{}, "d": map[string]any{}, "e": 1, "f": -1.5, "g": int64(1) << 50})
}

func FuzzYAMLReadsBack(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s, "b")
		f.Add("a", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			t.Skip("JSON has no such text")
		}
		checkYAML(t, map[string]any{a: b})
		checkYAML(t, []any{a, b})
	})
}
