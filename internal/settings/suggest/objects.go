package suggest

import (
	"cmp"
	"slices"
	"strings"
)

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
