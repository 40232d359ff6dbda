package patch_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/patch"
)

// A patch is a list of operations, and each of them repeats the path. So it may be far longer than the object.
func TestPatchSize(t *testing.T) {
	leaves := func(n int, value string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, `,"%05d":%s`, i, value)
		}
		return "{" + out.String()[1:] + "}"
	}
	nested := func(depth int, inner string) string {
		return strings.Repeat(`{"level":`, depth) + inner + strings.Repeat("}", depth)
	}
	for name, version := range map[string]func(value string) string{
		"a long name above many leaves": func(v string) string { return `{"` + strings.Repeat("k", 700_000) + `":` + leaves(60_000, v) + `}` },
		"a name that has to be escaped": func(v string) string { return `{"` + strings.Repeat("~/", 350_000) + `":` + leaves(60_000, v) + `}` },
		"a path just below the limit":   func(v string) string { return `{"` + strings.Repeat("k", 4000) + `":` + leaves(60_000, v) + `}` },
		"many levels above many leaves": func(v string) string { return nested(100, leaves(60_000, v)) },
		"many leaves at the top":        func(v string) string { return leaves(60_000, v) },
	} {
		t.Run(name, func(t *testing.T) {
			old, changed := []byte(version("1")), []byte(version("2"))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			diff := patch.Diff(old, changed)
			runtime.ReadMemStats(&after)
			checkDiffSize(t, diff, changed)
			// What was allocated in all is more than what was in use at any time.
			if used, input := after.TotalAlloc-before.TotalAlloc, uint64(len(old)+len(changed)); used > 16*input {
				t.Errorf("allocated %d bytes for %d bytes of input", used, input)
			}
			checkDiff(t, old, changed)
		})
	}
	t.Run("a small change below a long name replaces its parent", func(t *testing.T) {
		name := strings.Repeat("k", 5000)
		old := []byte(`{"a":{"` + name + `":{"b":1}},"c":"` + strings.Repeat("x", 10_000) + `"}`)
		diff := patch.Diff(old, bytes.Replace(old, []byte(`"b":1`), []byte(`"b":2`), 1))
		if want := `[{"op":"replace","path":"/a","value":{"` + name + `":{"b":2}}}]`; string(diff) != want {
			t.Errorf("%.200s", diff)
		}
	})
}

// checkDiffSize compares a diff with the one operation that replaces the document.
func checkDiffSize(t *testing.T, diff, changed []byte) {
	t.Helper()
	if len(diff) > len(changed)+len(`[{"op":"replace","path":"","value":}]`) {
		t.Errorf("a patch of %d bytes makes an object of %d bytes", len(diff), len(changed))
	}
}
