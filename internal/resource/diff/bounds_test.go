package diff_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A patch is a list of operations, and each of them repeats the path. So it may be far longer than
// the object.
func TestPatchSize(t *testing.T) {
	for name, version := range map[string]func(value string) string{
		"a long name above many leaves": func(v string) string { return `{"` + strings.Repeat("k", 700_000) + `":` + leaves(60_000, v) + `}` },
		"a name that has to be escaped": func(v string) string { return `{"` + strings.Repeat("~/", 350_000) + `":` + leaves(60_000, v) + `}` },
		"a path just below the limit":   func(v string) string { return `{"` + strings.Repeat("k", 4000) + `":` + leaves(60_000, v) + `}` },
		"many levels above many leaves": func(v string) string { return nested(100, leaves(10_000, v)) },
		"many leaves at the top":        func(v string) string { return leaves(10_000, v) },
	} {
		t.Run(name, func(t *testing.T) {
			old, changed := []byte(version("1")), []byte(version("2"))
			var found []byte
			used := testkit.Allocated(func() { found = diff.Diff(old, changed) })
			checkDiffSize(t, found, changed)
			// What was allocated in all is more than what was in use at any time.
			if input := uint64(len(old) + len(changed)); used > 4*input {
				t.Errorf("allocated %d bytes for %d bytes of input", used, input)
			}
			checkDiff(t, old, changed)
		})
	}
	t.Run("a small change below a long name replaces its parent", func(t *testing.T) {
		name := strings.Repeat("k", 5000)
		old := []byte(`{"a":{"` + name + `":{"b":1}},"c":"` + strings.Repeat("x", 10_000) + `"}`)
		diff := diff.Diff(old, bytes.Replace(old, []byte(`"b":1`), []byte(`"b":2`), 1))
		if want := `[{"op":"replace","path":"/a","value":{"` + name + `":{"b":2}}}]`; string(diff) != want {
			t.Errorf("%.200s", diff)
		}
	})
}

func leaves(n int, value string) string { return members(n, "%05d", value) }

// members is an object with n members whose names have numbers in them.
func members(n int, name, value string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `,"`+name+`":%s`, i, value)
	}
	return "{" + out.String()[1:] + "}"
}

func nested(depth int, inner string) string {
	return strings.Repeat(`{"level":`, depth) + inner + strings.Repeat("}", depth)
}

// Two versions of a size, for which the time of an algorithm with nested loops is quadratic.
var shapes = map[string]func(size int) (old, changed string){
	"all names differ": func(n int) (string, string) { return members(n, "a%d", "1"), members(n, "b%d", "1") },
	"the order is reversed": func(n int) (string, string) {
		var old, changed strings.Builder
		for i := range n {
			fmt.Fprintf(&old, `,"%d":1`, i)
			fmt.Fprintf(&changed, `,"%d":1`, n-i)
		}
		return "{" + old.String()[1:] + "}", "{" + changed.String()[1:] + "}"
	},
	"every second name is new": func(n int) (string, string) {
		return members(n, "%d", "1"), strings.ReplaceAll(members(n, "%d", "1"), `0":1`, `x":2`)
	},
	"levels": func(n int) (string, string) {
		n = min(n/10, 9_000)
		return nested(n, "1"), nested(n, "2")
	},
	"levels above a large leaf": func(n int) (string, string) {
		text := strings.Repeat("x", 100*n)
		return nested(n/10, `"`+text+`1"`), nested(n/10, `"`+text+`2"`)
	},
	"levels of lists": func(n int) (string, string) {
		return strings.Repeat("[1,", n/10) + "2" + strings.Repeat("]", n/10), strings.Repeat("[1,", n/10) + "3" + strings.Repeat("]", n/10)
	},
	"a list that begins otherwise": func(n int) (string, string) {
		return "[0" + strings.Repeat(",1", n) + "]", "[2" + strings.Repeat(",1", n/2) + "]"
	},
	"new objects without a null": func(n int) (string, string) { return "{}", `{"a":` + nested(n/10, leaves(n, "1")) + "}" },
}

// The time of everything here is linear in the size of the versions.
func TestLinearTime(t *testing.T) {
	everywhere := resource.NewPaths(mustPath(t, "nowhere.*"), mustPath(t, "*.nowhere"))
	for shape, versions := range shapes {
		for name, work := range map[string]func(old, changed []byte){
			"Diff":  func(old, changed []byte) { diff.Diff(old, changed) },
			"Merge": func(old, changed []byte) { diff.Merge(old, changed) },
			"Equal": func(old, changed []byte) { diff.Equal(old, changed, everywhere) },
		} {
			t.Run(name+" where "+shape, func(t *testing.T) {
				testkit.CheckLinear(t, 2_000, func(size int) func() {
					old, changed := versions(size)
					return func() { work([]byte(old), []byte(changed)) }
				})
			})
		}
	}
}

func TestDepth(t *testing.T) {
	t.Run("what differs below 128 levels is replaced there", func(t *testing.T) {
		old, changed := []byte(nested(9_000, "1")), []byte(nested(9_000, "2"))
		want := `[{"op":"replace","path":"` + strings.Repeat("/level", 128) + `","value":` + nested(9_000-128, "2") + `}]`
		if got := string(diff.Diff(old, changed)); got != want {
			t.Errorf("%.1000s", got)
		}
		if got, ok := diff.Merge(old, changed); ok {
			t.Errorf("a merge patch %.1000s", got)
		}
	})
	t.Run("what differs above is compared member by member", func(t *testing.T) {
		old, changed := []byte(nested(120, `{"a":1,"b":2}`)), []byte(nested(120, `{"b":2,"a":3}`))
		want := `[{"op":"replace","path":"` + strings.Repeat("/level", 120) + `/a","value":3}]`
		if got := string(diff.Diff(old, changed)); got != want {
			t.Errorf("%.1000s", got)
		}
		if got, ok := diff.Merge(old, changed); !ok || string(got) != nested(120, `{"a":3}`) {
			t.Errorf("%v, %.1000s", ok, got)
		}
	})
	t.Run("another order of members is no difference above, and one below", func(t *testing.T) {
		for depth, want := range map[int]bool{100: true, 200: false} {
			old, changed := []byte(nested(depth, `{"a":1,"b":2}`)), []byte(nested(depth, `{"b":2,"a":1}`))
			if got := diff.Equal(old, changed, nil); got != want {
				t.Errorf("%d levels: %v", depth, got)
			}
		}
	})
}

func mustPath(t testing.TB, text string) resource.Path {
	t.Helper()
	p, err := resource.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkDiffSize compares a diff with the one operation that replaces the document.
func checkDiffSize(t *testing.T, diff, changed []byte) {
	t.Helper()
	if len(diff) > len(changed)+len(`[{"op":"replace","path":"","value":}]`) {
		t.Errorf("a patch of %d bytes makes an object of %d bytes", len(diff), len(changed))
	}
}
