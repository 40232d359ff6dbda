package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/suggest"
)

// mostNear is how many objects are named when another was not found.
const mostNear = 5

// near is a known object, and how far its key is from the one that was looked for.
type near struct {
	key  string
	away int
}

// nearKeys are the objects of a unit that were probably meant, the nearest first.
func nearKeys(unit store.Unit, meant resource.Key) ([]string, error) {
	var best []near
	for key, err := range unit.Keys() {
		if err != nil {
			return nil, err
		}
		best = nearest(best, meant, key)
	}
	var keys []string
	for _, n := range best {
		keys = append(keys, n.key)
	}
	return keys, nil
}

// nearest adds a key to the best ones, if it is one of them.
func nearest(best []near, meant, key resource.Key) []near {
	away, ok := distance(meant, key)
	if !ok {
		return best
	}
	at, _ := slices.BinarySearchFunc(best, away+1,
		func(n near, away int) int { return cmp.Compare(n.away, away) })
	if at < mostNear {
		best = slices.Insert(best, at, near{string(key), away})
		best = best[:min(len(best), mostNear)]
	}
	return best
}

// distance says how far a key is from the one meant: the same name in another namespace is nearest,
// then a name that continues with a hash or number, then one with other letters. Not ok: it is
// another name.
func distance(meant, key resource.Key) (away int, ok bool) {
	meantNamespace, meantName := meant.Split()
	namespace, name := key.Split()
	switch {
	case name == meantName:
	case strings.HasPrefix(name, meantName), strings.HasPrefix(meantName, name):
		away = 2
	default:
		most := 2 + len(meantName)/6
		if max(len(name)-len(meantName), len(meantName)-len(name)) > most {
			return 0, false // without a look at the letters: there may be a million names
		}
		letters := suggest.Distance(meantName, name)
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
