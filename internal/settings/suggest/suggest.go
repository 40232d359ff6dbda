// Package suggest finds what somebody probably meant: names, and objects by their keys.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
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

// mostObjects is how many objects are named when another was not found.
const mostObjects = 5

// Objects finds the objects that were probably meant by one that is not known. The zero value has
// none.
type Objects struct{ best []near }

// near is a known object, and how far its key is from the one that was looked for.
type near struct {
	key  string
	away int
}

// Add adds a known object, if it is one of the nearest. Both keys are NAMESPACE/NAME, or NAME of an
// object without namespace.
func (o *Objects) Add(meant, key string) {
	away, ok := distance(meant, key)
	if !ok {
		return
	}
	at, _ := slices.BinarySearchFunc(o.best, away+1,
		func(n near, away int) int { return cmp.Compare(n.away, away) })
	if at < mostObjects {
		o.best = slices.Insert(o.best, at, near{key, away})
		o.best = o.best[:min(len(o.best), mostObjects)]
	}
}

// Nearest returns the keys of at most five objects, the nearest first.
func (o *Objects) Nearest() (keys []string) {
	for _, n := range o.best {
		keys = append(keys, n.key)
	}
	return keys
}

// distance says how far a key is from the one meant: the same name in another namespace is nearest,
// then a name that continues with a hash or number, then one with other letters. Not ok: it is
// another name.
func distance(meant, key string) (away int, ok bool) {
	meantNamespace, meantName := split(meant)
	namespace, name := split(key)
	switch {
	case name == meantName:
	case strings.HasPrefix(name, meantName), strings.HasPrefix(meantName, name):
		away = 2
	default:
		most := 2 + len(meantName)/6
		if max(len(name)-len(meantName), len(meantName)-len(name)) > most {
			return 0, false // without a look at the letters: there may be a million names
		}
		letters := Distance(meantName, name)
		if letters > most {
			return 0, false
		}
		away = 2 + 2*letters
	}
	if namespace != meantNamespace {
		away++
	}
	return away, true
}

func split(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}
