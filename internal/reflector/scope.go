package reflector

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Namespaces says which namespaces are selected. It may be called from any goroutine.
type Namespaces interface {
	// Current gives the selection, nil while it is not known yet, and a channel that is closed when it is another.
	Current() (set *NamespaceSet, changed <-chan struct{})
}

// NamespaceSet is a selection of namespaces at one moment. It never changes.
type NamespaceSet struct {
	// Selected are the namespaces, each with the version of the Namespace in which it was found to be selected.
	Selected map[string]resource.Version
	// Exists says which namespaces there are, selected or not.
	Exists map[string]bool
}

// scope is which of the objects that the API server tells of the Store gets. It is owned by Run.
type scope struct {
	// states of the namespaces, as the Store was told. What is not in it was never selected.
	states map[string]resource.NamespaceState
	// asOf are, of those that came in alone, the versions as of which they are listed, or were. What a watch tells of the time before is
	// covered by that.
	asOf map[string]resource.Version
	// marked is the last version that Progress was told, and when.
	marked   resource.Version
	markedAt time.Time
}

// errMoved ends a watch because namespaces have come into the selection, or left it.
var errMoved = errors.New("the selection of namespaces has changed")

// choice is what is done with an object that was read.
type choice int

const (
	selected   choice = iota
	unselected        // the Store is told that it does not match
	passed            // the Store is told nothing
)

// choose makes the choice. An error is a panic of a selector, which refuses the object.
func (r *Reflector) choose(obj *resource.Object) (c choice, err *resource.RefusedError) {
	defer func() {
		if v := recover(); v != nil {
			err = resource.Refuse(resource.IdentityOf(obj), resource.Panicked(v))
		}
	}()
	switch {
	case !r.state.relist.Partial() && !r.scoped(obj), r.cfg.Selects != nil && !r.cfg.Selects(obj):
		return passed, nil
	case r.cfg.Matches != nil && !r.cfg.Matches(obj):
		return unselected, nil
	}
	return selected, nil
}

// scoped reports whether an object is in a namespace that is selected, and not covered by the list of that.
func (r *Reflector) scoped(obj *resource.Object) bool {
	return r.cfg.Namespaces == nil || r.scope.states[obj.Namespace].Selected() && !obj.Version.NotNewer(r.scope.asOf[obj.Namespace])
}

// concerns reports whether an object that is refused would be wanted, as far as that is known.
func (r *Reflector) concerns(refused *resource.RefusedError) (yes bool) {
	if refused.Key == "" {
		return true
	}
	obj := objectOf(refused)
	if r.cfg.Namespaces != nil && !r.state.relist.Partial() && !r.scope.states[obj.Namespace].Selected() {
		return false
	}
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	return r.cfg.Selects == nil || r.cfg.Selects(obj)
}

// listUnselected hands on an item of a list that is not selected: it may have been.
func (r *Reflector) listUnselected(ctx context.Context, obj *resource.Object) error {
	r.metrics.passed.Inc()
	return fromStore(r.cfg.Unselected(ctx, obj, false))
}

// passEvery is how often Progress is told while only what nobody wants comes.
const passEvery = time.Second

// pass takes note of an event about an object that is not wanted: the stream has come so far.
func (r *Reflector) pass(ctx context.Context, f *frame, deletion bool) error {
	r.metrics.passed.Inc()
	r.state.at.took(f.obj, deletion)
	r.moved()
	if r.cfg.Progress == nil || r.state.at.complete == r.scope.marked || time.Since(r.scope.markedAt) < passEvery {
		return nil
	}
	r.scope.marked, r.scope.markedAt = r.state.at.complete, time.Now()
	return fromStore(r.cfg.Progress(ctx, r.state.at.complete))
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

// move is the list that tells the Store of one namespace that comes into the selection or leaves it. What leaves comes first.
func move(states map[string]resource.NamespaceState, set *NamespaceSet) (why resource.Relist, ok bool) {
	for name, state := range states {
		_, wanted := set.Selected[name]
		leaves := state == resource.NamespaceLeaving || state.Selected() && !wanted
		forgotten := state == resource.NamespaceOut && !set.Exists[name]
		if (leaves || forgotten) && (!ok || name < why.Namespace) {
			why, ok = resource.Relist{Namespace: name, Left: true, Gone: !set.Exists[name]}, true
		}
	}
	if ok {
		return why, true
	}
	for name, at := range set.Selected {
		if states[name] != resource.NamespaceIn && (!ok || name < why.Namespace) {
			why, ok = resource.Relist{Namespace: name, Entered: at}, true
		}
	}
	return why, ok
}

// beginMove begins to tell the Store of a namespace whose selection has changed, if there is one.
func (r *Reflector) beginMove() bool {
	if r.cfg.Namespaces == nil {
		return false
	}
	set, _ := r.cfg.Namespaces.Current()
	why, ok := move(r.scope.states, set)
	if !ok {
		return false
	}
	why.To = r.state.at.version
	if why.Left {
		r.scope.states[why.Namespace] = resource.NamespaceLeaving
		delete(r.scope.asOf, why.Namespace)
		r.metrics.left.Inc()
	} else {
		why.From = r.scope.asOf[why.Namespace]
		r.scope.states[why.Namespace] = resource.NamespaceEntering
		r.metrics.entered.Inc()
	}
	r.state = r.state.move(why)
	r.log.Info("the selection of namespaces has changed", "namespace", why.Namespace, "selected", !why.Left)
	return true
}

// aimMove chooses the version as of which a namespace is listed: that of now, so that what was in another namespace of its name is gone
// by then. The list is made as of it, also after a crash, and the watch tells every version that comes after.
func (r *Reflector) aimMove(ctx context.Context) error {
	if r.state.relist.From != "" {
		return nil
	}
	now, err := r.probe(ctx)
	r.state = r.state.aim(now)
	return err
}

// leave tells the Store that nothing of a namespace is wanted any more. Nothing has to be asked for that.
func (r *Reflector) leave(ctx context.Context) error {
	if err := fromStore(r.cfg.Store.BeginReplace(ctx, *r.state.relist)); err != nil {
		return err
	}
	return r.endMove(ctx, r.state.at.version)
}

// endMove says that a namespace was told completely. The position in the stream stays as it is: all else goes on from there.
func (r *Reflector) endMove(ctx context.Context, v resource.Version) error {
	if err := r.cfg.Store.EndReplace(ctx, v); err != nil {
		return fromStore(err)
	}
	why := r.state.relist
	r.state = r.state.listed(r.state.at)
	switch {
	case !why.Left:
		r.scope.asOf[why.Namespace] = v
		r.scope.states[why.Namespace] = resource.NamespaceIn
	case why.Gone:
		delete(r.scope.states, why.Namespace)
	default:
		r.scope.states[why.Namespace] = resource.NamespaceOut
	}
	return nil
}

// adopt gives the selection that a list of everything is made for. A namespace of which it was begun to tell that it left has to leave
// before it may come again.
func (r *Reflector) adopt() map[string]resource.Version {
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

// adopted says that the Store has what adopt gave. A list with an item of which nobody knows which object it is takes nothing for gone: so what leaves
// is not told yet, and is by a list of its own.
func (r *Reflector) adopted() {
	for name, state := range r.scope.states {
		switch {
		case state == resource.NamespaceEntering:
			r.scope.states[name] = resource.NamespaceIn
		case state == resource.NamespaceLeaving && !r.quarantine.unidentified:
			r.scope.states[name] = resource.NamespaceOut
		}
	}
}

// adoptOnly tells the Store of the selection with which the future begins: nothing is listed.
func (r *Reflector) adoptOnly(ctx context.Context) error {
	if r.cfg.Namespaces == nil {
		return nil
	}
	why := resource.Relist{Namespaces: r.adopt(), Only: true}
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

// untilMoved ends the stream when the selection of namespaces changes. It must be stopped before anything else happens.
func (r *Reflector) untilMoved(s *stream) (stop func()) {
	if r.cfg.Namespaces == nil {
		return func() {}
	}
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			set, changed := r.cfg.Namespaces.Current()
			if _, moves := move(r.scope.states, set); moves {
				s.cancel(errMoved)
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
