package record

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

func TestDelta(t *testing.T) {
	pod := []byte(`{"metadata":{"name":"web","resourceVersion":"1041"},"status":{"phase":"Pending","conditions":[` +
		strings.Repeat(`{"type":"Ready","status":"False"},`, 40) + `{}]}}`)
	for name, text := range map[string][]byte{
		"the same":                    pod,
		"nothing":                     {},
		"a value of the same length":  bytes.Replace(pod, []byte("1041"), []byte("1042"), 1),
		"a longer value":              bytes.Replace(pod, []byte("Pending"), []byte("Running for long"), 1),
		"something behind":            append(bytes.Clone(pod), `more`...),
		"something before":            append([]byte(`much more than before`), pod...),
		"less":                        pod[20:200],
		"something else":              []byte(strings.Repeat("x", 1000)),
		"parts in another order":      append(bytes.Clone(pod[300:]), pod[:300]...),
		"shorter than what is hashed": []byte("abc"),
	} {
		t.Run("makes "+name, func(t *testing.T) {
			var d Encoder
			delta := d.append(nil, pod, text)
			got, err := applyDelta(nil, pod, delta, len(text))
			if err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%v, %q", err, got)
			}
		})
	}
	t.Run("a changed value costs little more than its bytes", func(t *testing.T) {
		var d Encoder
		text := bytes.Replace(pod, []byte("Pending"), []byte("Running for long"), 1)
		text = bytes.Replace(text, []byte("1041"), []byte("1042"), 1)
		if delta := d.append(nil, pod, text); len(delta) > 40 {
			t.Errorf("%d bytes", len(delta))
		}
	})
}

func TestDeltaLinearTime(t *testing.T) {
	members := func(n int, name, value string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, `"`+name+`":%s,`, i, value)
		}
		return out.String()
	}
	for what, texts := range map[string]func(n int) (base, text string){
		"all names differ":    func(n int) (string, string) { return members(n, "a%d", "1"), members(n, "b%d", "1") },
		"all values differ":   func(n int) (string, string) { return members(n, "a%d", "1"), members(n, "a%d", "2") },
		"one of many differs": func(n int) (string, string) { return members(n, "a%d", "1"), members(n+1, "a%d", "1") },
		"items are the same": func(n int) (string, string) {
			return "[0" + strings.Repeat(",1", n) + "]", "[2" + strings.Repeat(",1", n/2) + "]"
		},
		"levels are the same": func(n int) (string, string) {
			return strings.Repeat(`{"a":`, n/10) + "1", strings.Repeat(`{"a":`, n/10) + "2"
		},
		"a long name is above many": func(n int) (string, string) {
			name := strings.Repeat("k", 10*n)
			return name + members(n, "%d", "1"), name + members(n, "%d", "2")
		},
	} {
		t.Run("where "+what, func(t *testing.T) {
			testkit.CheckLinear(t, 4_000, func(size int) func() {
				base, text := texts(size)
				var d Encoder
				return func() { d.append(nil, []byte(base), []byte(text)) }
			})
		})
	}
}

// FuzzDelta: what was made of two texts gives the second one, and what somebody else wrote gives an
// error or a text of the length that was asked for.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("the first version of it"), []byte("the second version of it, longer"), []byte{3, 'a', 'b', 'c', 4, 0})
	f.Add([]byte(strings.Repeat("0123456789", 20)), []byte(strings.Repeat("012345678", 20)), []byte{0, 200, 1, 0})
	var d Encoder
	f.Fuzz(func(t *testing.T, base, text, garbage []byte) {
		got, err := applyDelta(nil, base, d.append(nil, base, text), len(text))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%v, %q instead of %q", err, got, text)
		}
		const length = 300
		if got, err := applyDelta(nil, base, garbage, length); err == nil && len(got) != length || err != nil && !errors.Is(err, ErrMisfit) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	})
}
