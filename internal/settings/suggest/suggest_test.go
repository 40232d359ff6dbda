package suggest_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// The nearest name is suggested.
func TestNearest(t *testing.T) {
	known := []string{"pods", "nodes", "Deployments"}
	for misspelt, want := range map[string]string{
		"pdos":        `: did you mean "pods"?`,
		"noodes":      `: did you mean "nodes"?`,
		"deployment":  `: did you mean "Deployments"?`,
		"something":   "; there are pods, nodes, Deployments",
		"entirely no": "; there are pods, nodes, Deployments",
	} {
		if got := suggest.DidYouMean(misspelt, known, 3); got != want {
			t.Errorf("%s%s, want %s", misspelt, got, want)
		}
	}
	if got := suggest.DidYouMean("something", known, 2); got != "" {
		t.Errorf("of more than a few names it lists %s", got)
	}
}

func TestDistanceCountsLetters(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"pods", "pdos", 1}, {"pods", "pod", 1}, {"pods", "pots", 1}, {"abc", "xyz", 3}} {
		if got := suggest.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := suggest.Distance(strings.Repeat("x", 1e6), "pods"); got < 60 {
		t.Errorf("garbage is %d from a name", got)
	}
}
