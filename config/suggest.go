package config

import (
	"fmt"
	"strings"
)

// didYouMean is ": did you mean …?" for a name that is close to a misspelt one, else what names there are.
func didYouMean(name string, known []string) string {
	if best := nearest(name, known, len(name)/3+1); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	if len(known) == 0 {
		return ""
	}
	return "; there are " + strings.Join(known, ", ")
}

// nearest is the known name that differs from name by the fewest letters, at most by most of them; "" when none does.
func nearest(name string, known []string, most int) string {
	best, least := "", most
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance is how many letters must be put in, left out, replaced or swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	const tooLong = 64 // names are shorter; a file full of garbage must not cost a square of its length
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
