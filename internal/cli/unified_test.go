package cli

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// unified returns the diff of two texts, and how many of its lines are edits.
func unified(t *testing.T, a, b []string) (text string, edits int) {
	t.Helper()
	var out strings.Builder
	whole := func(lines []string) string { return strings.Join(append(slices.Clip(lines), ""), "\n") }
	testkit.OK(t, writeUnified(&out, "a", whole(a), "b", whole(b), false))
	for line := range strings.Lines(out.String()) {
		if line[0] != ' ' && line[0] != '@' && line != "--- a\n" && line != "+++ b\n" {
			edits++
		}
	}
	return out.String(), edits
}

// patched applies a unified diff to the lines of a text.
func patched(t *testing.T, a []string, text string) (b []string) {
	t.Helper()
	if text == "no difference\n" {
		return a
	}
	at := 0 // line of a
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case i < 2: // the titles
		case line[0] == '@':
			var begin, count int
			if _, err := fmt.Sscanf(line, "@@ -%d,%d ", &begin, &count); err != nil {
				t.Fatal(line, err)
			}
			if count == 0 {
				begin++
			}
			b, at = append(b, a[at:begin-1]...), begin-1
		case line[0] == '+':
			b = append(b, line[1:])
		default:
			if at == len(a) || line[1:] != a[at] {
				t.Fatalf("%q is not line %d of %q", line, at, a)
			}
			if line[0] == ' ' {
				b = append(b, a[at])
			}
			at++
		}
	}
	return append(b, a[at:]...)
}

func TestUnifiedDiff(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	change := func(a []string, changes int) []string {
		b := slices.Clone(a)
		for i := range changes {
			b = slices.Insert(b, random.IntN(len(b)+1), fmt.Sprint("new ", i))
		}
		return b
	}
	t.Run("the edits make one text of the other", func(t *testing.T) {
		for range 500 {
			a := make([]string, random.IntN(30))
			for i := range a {
				a[i] = fmt.Sprint(random.IntN(8))
			}
			b := change(a, random.IntN(4))
			text, _ := unified(t, a, b)
			if got := patched(t, a, text); !slices.Equal(got, b) {
				t.Fatalf("%q to %q: %q by\n%s", a, b, got, text)
			}
		}
	})
	t.Run("the edits are few", func(t *testing.T) {
		for range 500 {
			a := make([]string, random.IntN(30))
			for i := range a {
				a[i] = fmt.Sprint("line ", i)
			}
			changes := random.IntN(4)
			b := change(a, changes)
			if text, edits := unified(t, a, b); changes > 0 && edits > changes {
				t.Fatalf("%q to %q: %d edits\n%s", a, b, edits, text)
			}
		}
	})
	t.Run("texts without anything in common are replaced", func(t *testing.T) {
		var a, b []string
		for i := range 3000 {
			a, b = append(a, fmt.Sprint("a", i)), append(b, fmt.Sprint("b", i))
		}
		if _, edits := unified(t, a, b); edits != 6000 {
			t.Errorf("%d edits", edits)
		}
	})
	t.Run("each hunk says where it is", func(t *testing.T) {
		var a []string
		for i := range 40 {
			a = append(a, fmt.Sprint("line ", i))
		}
		b := slices.Clone(a)
		b[2], b[30] = "changed", "changed too"
		text, _ := unified(t, a, b)
		for _, want := range []string{"@@ -1,6 +1,6 @@\n line 0\n line 1\n-line 2\n+changed\n line 3", "@@ -28,7 +28,7 @@\n line 27"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	})
}
