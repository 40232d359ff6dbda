package reflector

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Namespaces has the selected namespaces. It may be called from any goroutine.
type Namespaces interface {
	// Current returns the selection, nil while it is not known yet, and a channel that is closed
	// when it changes.
	Current() (set *NamespaceSet, changed <-chan struct{})
}

// NamespaceSet is a selection of namespaces at one moment. It is immutable.
type NamespaceSet struct {
	// Selected are the namespaces, each with the version of the Namespace in which it was found to
	// be selected.
	Selected map[string]resource.Version
	// Exists has the existing namespaces, selected or not.
	Exists map[string]bool
}

// scope selects the API server's objects that the Store gets. It is owned by Run.
type scope struct {
	// states of the namespaces, as reported to the Store. A namespace that is missing here was
	// never selected.
	states map[string]resource.NamespaceState
	// asOf has, of namespaces that entered alone, the versions as of which they are listed, or
	// were. Changes from before are covered by that list.
	asOf map[string]resource.Version
	// progressed is the last version that Store.Progress got, and when.
	progressed   resource.Version
	progressedAt time.Time
}

// errSelectionChanged ends a watch because namespaces have entered the selection, or left it.
var errSelectionChanged = errors.New("the selection of namespaces has changed")

// chooseAction returns what to do with an object. An error is a panic of a selector, which refuses
// the object.
func (r *Reflector) chooseAction(obj *resource.Object) (c frameAction, err *resource.RefusedError) {
	defer func() {
		if v := recover(); v != nil {
			err = resource.Refuse(resource.IdentityOf(obj), resource.Panicked(v))
		}
	}()
	switch {
	case !r.state.relist.Partial() && !r.scoped(obj), r.cfg.Selects != nil && !r.cfg.Selects(obj):
		return unwanted, nil
	case r.cfg.Matches != nil && !r.cfg.Matches(obj):
		return unselected, nil
	}
	return selected, nil
}

// scoped reports whether an object is in a selected namespace, and newer than the list of that.
func (r *Reflector) scoped(obj *resource.Object) bool {
	return r.cfg.Namespaces == nil || r.scope.states[obj.Namespace].Selected() &&
		!obj.Version.NotNewer(r.scope.asOf[obj.Namespace])
}

// concerns reports whether a refused object would be wanted, as far as that is known.
func (r *Reflector) concerns(refused *resource.RefusedError) (yes bool) {
	if refused.Key == "" {
		return true
	}
	obj := objectOf(refused)
	if r.cfg.Namespaces != nil && !r.state.relist.Partial() &&
		!r.scope.states[obj.Namespace].Selected() {
		return false
	}
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	return r.cfg.Selects == nil || r.cfg.Selects(obj)
}

// objectOf returns the known identity of a refused object.
func objectOf(refused *resource.RefusedError) *resource.Object {
	namespace, name := refused.Key.Split()
	return &resource.Object{Meta: resource.Meta{
		Namespace: namespace, Name: name, UID: refused.UID,
		Version: refused.Version,
	}}
}

// listUnselected hands on an unselected item of a list: it may have been selected before.
func (r *Reflector) listUnselected(ctx context.Context, obj *resource.Object) error {
	r.metrics.passed.Inc()
	return fromStore(r.cfg.Store.Unselected(ctx, obj, false))
}

// progressInterval is how often Progress is called while only unwanted objects come.
const progressInterval = time.Second

// recordProgress handles an event about an unwanted object: only the position moves.
func (r *Reflector) recordProgress(ctx context.Context, f *frame, deletion bool) error {
	r.metrics.passed.Inc()
	r.state.at.took(f.obj, deletion)
	r.publishPosition()
	if r.state.at.complete == r.scope.progressed ||
		time.Since(r.scope.progressedAt) < progressInterval {
		return nil
	}
	r.scope.progressed, r.scope.progressedAt = r.state.at.complete, time.Now()
	return fromStore(r.cfg.Store.Progress(ctx, r.state.at.complete))
}

// awaitNamespaces waits until the selection is known for the first time.
func (r *Reflector) awaitNamespaces(ctx context.Context) {
	if r.cfg.Namespaces == nil {
		return
	}
	r.status.phase(Selecting)
	for ctx.Err() == nil {
		set, changed := r.cfg.Namespaces.Current()
		if set != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// nextMove returns the list that reports one namespace that enters the selection or leaves it.
// Namespaces that leave come first.
func nextMove(
	states map[string]resource.NamespaceState, set *NamespaceSet,
) (why resource.Relist, ok bool) {
	for name, state := range states {
		_, wanted := set.Selected[name]
		leaves := state == resource.NamespaceLeaving || state.Selected() && !wanted
		forgotten := state == resource.NamespaceOut && !set.Exists[name]
		if (leaves || forgotten) && (!ok || name < why.Namespace) {
			why, ok = resource.Relist{Kind: resource.RelistLeaves, Namespace: name}, true
			if !set.Exists[name] {
				why.Kind = resource.RelistDeleted
			}
		}
	}
	if ok {
		return why, true
	}
	for name, at := range set.Selected {
		if states[name] != resource.NamespaceIn && (!ok || name < why.Namespace) {
			why, ok = resource.Relist{Kind: resource.RelistEnters, Namespace: name, Entered: at}, true
		}
	}
	return why, ok
}

// beginMove begins to report a namespace whose selection has changed, if there is one.
func (r *Reflector) beginMove() bool {
	if r.cfg.Namespaces == nil {
		return false
	}
	set, _ := r.cfg.Namespaces.Current()
	why, ok := nextMove(r.scope.states, set)
	if !ok {
		return false
	}
	why.To = r.state.at.version
	if why.Leaves() {
		r.scope.states[why.Namespace] = resource.NamespaceLeaving
		delete(r.scope.asOf, why.Namespace)
		r.metrics.left.Inc()
	} else {
		why.From = r.scope.asOf[why.Namespace]
		r.scope.states[why.Namespace] = resource.NamespaceEntering
		r.metrics.entered.Inc()
	}
	r.state = r.state.move(why)
	r.log.Info("the selection of namespaces has changed", "namespace", why.Namespace,
		"selected", !why.Leaves())
	return true
}

// dropNamespace reports to the Store that nothing of a namespace is wanted any more. That needs no
// request.
func (r *Reflector) dropNamespace(ctx context.Context) error {
	if err := fromStore(r.cfg.Store.BeginReplace(ctx, *r.state.relist)); err != nil {
		return err
	}
	return r.endMove(ctx, r.state.at.version)
}

// endMove is called when a namespace was reported completely. The position in the stream stays:
// everything else continues from there.
func (r *Reflector) endMove(ctx context.Context, v resource.Version) error {
	if err := r.cfg.Store.EndReplace(ctx, v); err != nil {
		return fromStore(err)
	}
	why := r.state.relist
	r.state = r.state.listed(r.state.at)
	switch {
	case !why.Leaves():
		r.scope.asOf[why.Namespace] = v
		r.scope.states[why.Namespace] = resource.NamespaceIn
	case why.Kind == resource.RelistDeleted:
		delete(r.scope.states, why.Namespace)
	default:
		r.scope.states[why.Namespace] = resource.NamespaceOut
	}
	return nil
}

// nextSelection returns the selection for a list of everything. A namespace whose leaving was
// partly reported has to leave before it may enter again.
func (r *Reflector) nextSelection() map[string]resource.Version {
	if r.cfg.Namespaces == nil {
		return nil
	}
	set, _ := r.cfg.Namespaces.Current()
	adopted := maps.Clone(set.Selected)
	clear(r.scope.asOf)
	for name, state := range r.scope.states {
		if state == resource.NamespaceLeaving {
			delete(adopted, name)
		}
		if _, wanted := adopted[name]; state.Selected() && !wanted {
			r.scope.states[name] = resource.NamespaceLeaving
		}
	}
	for name := range adopted {
		if r.scope.states[name] != resource.NamespaceIn {
			r.scope.states[name] = resource.NamespaceEntering
		}
	}
	return adopted
}

// selectionTaken is called when the Store has the selection of nextSelection. A list with an
// unidentified item takes nothing for gone: then leaving namespaces are not reported yet, and get a
// list of their own.
func (r *Reflector) selectionTaken() {
	for name, state := range r.scope.states {
		switch {
		case state == resource.NamespaceEntering:
			r.scope.states[name] = resource.NamespaceIn
		case state == resource.NamespaceLeaving && !r.quarantine.unidentified:
			r.scope.states[name] = resource.NamespaceOut
		}
	}
}

// takeSelection reports the initial selection to the Store when nothing is listed.
func (r *Reflector) takeSelection(ctx context.Context) error {
	if r.cfg.Namespaces == nil {
		return nil
	}
	why := resource.Relist{Kind: resource.RelistSelection, Namespaces: r.nextSelection()}
	if err := r.cfg.Store.BeginReplace(ctx, why); err != nil {
		return fromStore(err)
	}
	for name, state := range r.scope.states {
		if state == resource.NamespaceEntering {
			r.scope.states[name] = resource.NamespaceIn
		}
	}
	return nil
}

// untilSelectionChanges ends the stream when the selection of namespaces changes. Call stop before
// anything else happens.
func (r *Reflector) untilSelectionChanges(s *stream) (stop func()) {
	if r.cfg.Namespaces == nil {
		return func() {}
	}
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			set, changed := r.cfg.Namespaces.Current()
			if _, moves := nextMove(r.scope.states, set); moves {
				s.cancel(errSelectionChanged)
				return
			}
			select {
			case <-changed:
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}
