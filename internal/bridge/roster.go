package bridge

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// roster is who is there: the units that run, and what became of those that had to go.
type roster struct {
	mu sync.Mutex // guards all below; held for a few map operations only
	// units is replaced and never changed, so that who has it may go through it.
	units []*unit
	// gone are the last words of the units whose resource the API server does not serve any more, by name. The unit itself
	// is let go: it holds memory.
	gone map[string]lastWords
	// unsure says that a unit was stopped before it found out what a run before has sent.
	unsure bool
}

// all are the units that run, those that are being stopped among them. It is not to be changed.
func (r *roster) all() []*unit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.units
}

// lastWords are what is left of a unit that is gone.
type lastWords struct {
	name     string
	notReady string
	status   UnitStatus
}

// lost are the units whose resource has gone, by name.
func (r *roster) lost() []lastWords {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.gone), func(a, b lastWords) int { return strings.Compare(a.name, b.name) })
}

// add takes a unit in.
func (r *roster) add(u *unit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.units = append(slices.Clone(r.units), u)
	delete(r.gone, u.name)
}

// remove takes a unit out that has ended.
func (r *roster) remove(u *unit, why leaving) {
	sure, words := u.informer.Sure(), lastWords{u.name, u.notReady(false), u.status()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.units = slices.DeleteFunc(slices.Clone(r.units), func(other *unit) bool { return other == u })
	r.unsure = r.unsure || !sure && why != leavingChanged // then it has an heir, or doubt is called
	if why == leavingGone {
		r.gone[u.name] = words
	}
}

// doubt notes that a unit has ended without an heir that may have sent what is not known.
func (r *roster) doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsure = true
}

// keepInformers forgets the last words of units whose informer is not there any more.
func (r *roster) keepInformers(there []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.gone, func(_ string, w lastWords) bool { return !slices.Contains(there, w.status.Informer) })
}

// sure says whether every unit knows what was sent.
func (r *roster) sure() bool {
	r.mu.Lock()
	units, unsure := r.units, r.unsure
	r.mu.Unlock()
	return !unsure && !slices.ContainsFunc(units, func(u *unit) bool { return !u.informer.Sure() })
}
