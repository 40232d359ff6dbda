package cli

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestUnifiedDiff(t *testing.T) {
	t.Run("the edits make one text of the other, and are few", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			a := make([]string, random.IntN(30))
			for i := range a {
				a[i] = fmt.Sprint(random.IntN(8))
			}
			b := slices.Clone(a)
			changes := random.IntN(4)
			for range changes {
				i := random.IntN(len(b) + 1)
				b = slices.Insert(b, i, "new")
			}
			var old, now []string
			edits := 0
			for _, e := range diffLines(a, b) {
				if e.kind != '+' {
					old = append(old, e.line)
				}
				if e.kind != '-' {
					now = append(now, e.line)
				}
				edits += btoi(e.kind != ' ')
			}
			if !slices.Equal(old, a) || !slices.Equal(now, b) || edits > changes {
				t.Fatalf("%v to %v: %v, %v, %d edits", a, b, old, now, edits)
			}
		}
	})
	t.Run("texts without anything in common are replaced", func(t *testing.T) {
		var a, b []string
		for i := range 3000 {
			a, b = append(a, fmt.Sprint("a", i)), append(b, fmt.Sprint("b", i))
		}
		if edits := diffLines(a, b); len(edits) != 6000 {
			t.Errorf("%d edits", len(edits))
		}
	})
	t.Run("each hunk says where it is", func(t *testing.T) {
		var a []string
		for i := range 40 {
			a = append(a, fmt.Sprint("line ", i))
		}
		b := slices.Clone(a)
		b[2], b[30] = "changed", "changed too"
		var out strings.Builder
		if err := writeUnified(&out, "a", "b", a, b, false); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"@@ -1,6 +1,6 @@\n line 0\n line 1\n-line 2\n+changed\n line 3", "@@ -28,7 +28,7 @@\n line 27"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in\n%s", want, out.String())
			}
		}
	})
}
