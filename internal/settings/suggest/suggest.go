// Package suggest finds what somebody probably meant: names, and objects by their keys.
package suggest

import (
	"fmt"
	"strings"
)

// DidYouMean is ": did you mean …?" for a name that is close to a misspelt one, else what names
// there are, if they are at most few.
func DidYouMean(name string, known []string, few int) string {
	best := Nearest(name, known, len(name)/3+1)
	switch {
	case best != "":
		return fmt.Sprintf(": did you mean %q?", best)
	case len(known) == 0 || len(known) > few:
		return ""
	}
	return "; there are " + strings.Join(known, ", ")
}

// Nearest is the known name that differs from name by the fewest letters, at most by most of them;
// "" when none does.
func Nearest(name string, known []string, most int) string {
	best, least := "", most
	for _, k := range known {
		if d := Distance(strings.ToLower(name), strings.ToLower(k)); d <= least &&
			(best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// Distance is how many letters must be put in, left out, replaced or swapped with their neighbour
// to turn a into b.
func Distance(a, b string) int {
	// names are shorter; a file full of garbage must not cost a square of its length
	const tooLong = 64
	if len(a) > tooLong || len(b) > tooLong {
		return tooLong
	}
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
