package bridge

import (
	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// With namespaceSelector, versions of objects do not tell whether the leader has sent them: of a namespace that comes into the selection it sends
// objects of any age, and it may not know of that yet. So it also tells up to which version of the Namespaces it has worked in who is selected, and
// delivered what came of that.

// selection gives the version of the last change of what the unit selects; nil where there are no other replicas to compare it with.
func (u *unit) selection(b *Bridge) func() resource.Version {
	if u.cfg.NamespaceSelector == "" || b.replica == nil {
		return nil
	}
	return func() resource.Version { return u.selected.LastChange() } // there is none yet
}

// lookSelection is the version of the Namespaces that is worked in: what came of it is in the log, or settled. "" while it is not.
func (d *delivery) lookSelection(u *unit) (resource.Version, error) {
	if u.selected == nil {
		return "", nil
	}
	set, seen := u.selected.AsOf()
	if set == nil || set == d.workedIn {
		return seen, nil
	}
	saved, err := u.indexer.Namespaces()
	if err != nil {
		return "", err
	}
	for name := range set.Selected {
		if saved[name].State != resource.NamespaceIn {
			return "", nil
		}
	}
	for name, n := range saved {
		if _, selected := set.Selected[name]; !selected && n.State != resource.NamespaceOut {
			return "", nil
		}
	}
	d.workedIn = set
	return seen, nil
}

// noteSelection notes what is worked in by now: it is delivered when everything before the place is.
func (d *delivery) noteSelection(version resource.Version, low, next changelog.Position) {
	if d.selecting.version != "" && d.selecting.next <= low {
		d.selection, d.selecting = d.selecting.version, sample{}
	}
	if version == "" || d.selecting.version != "" {
		return
	}
	if d.selecting = (sample{version, next}); next <= low {
		d.selection, d.selecting = version, sample{}
	}
}
