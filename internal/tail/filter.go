package tail

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// Filter says which events are shown.
type Filter struct{ terms []term }

// term is one word of a filter.
type term struct {
	not   bool
	key   string // "" for text in the subject
	value string
}

// keys are what a word may ask for.
var keys = []string{"resource", "namespace", "name", "op", "sink", "informer", "manager", "kind"}

// ParseFilter reads words that must all be true of an event: key:value, where the value may hold *
// for anything, or a text that is in the event's subject (the object's API path) or partition key.
// A dash before a word turns it round. The keys are resource (pods, or deployments.apps),
// namespace, name, op (added, updated, deleted, synced, gap, quarantined), sink, informer, manager
// and kind. No words: everything.
func ParseFilter(text string) (Filter, error) {
	var f Filter
	for word := range strings.FieldsSeq(text) {
		var t term
		rest, not := strings.CutPrefix(word, "-")
		t.not, t.value = not, strings.ToLower(rest)
		if key, value, found := strings.Cut(rest, ":"); found {
			t.key, t.value = strings.ToLower(key), strings.ToLower(value)
			if !slices.Contains(keys, t.key) {
				return Filter{}, fmt.Errorf("filter %q: there is no key %q; there are %s", word,
					key, strings.Join(keys, ", "))
			}
			if _, err := path.Match(t.value, ""); err != nil {
				return Filter{}, fmt.Errorf("filter %q: want a name, with * for anything", word)
			}
		}
		if t.value == "" {
			return Filter{}, fmt.Errorf("filter %q: there is nothing to look for", word)
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

// match reports whether an event of a sink is shown.
func (f Filter) match(sink string, e *event.Event) bool {
	for _, t := range f.terms {
		if t.match(sink, e) == t.not {
			return false
		}
	}
	return true
}

func (t term) match(sink string, e *event.Event) bool {
	is := func(value string) bool {
		ok, _ := path.Match(t.value, strings.ToLower(value)) // ParseFilter has tried the pattern
		return ok
	}
	switch t.key {
	case "resource":
		return is(e.Resource) || is(qualified(e))
	case "namespace":
		return is(e.Namespace)
	case "name":
		return is(e.Name)
	case "op":
		return is(string(e.Op))
	case "sink":
		return is(sink)
	case "informer":
		return is(e.Informer)
	case "manager":
		return is(e.Manager)
	case "kind":
		return is(e.Kind)
	default:
		return strings.Contains(strings.ToLower(e.Subject), t.value) ||
			strings.Contains(strings.ToLower(e.PartitionKey), t.value)
	}
}
