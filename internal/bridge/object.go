package bridge

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
)

// ObjectState is the last settled state of an object, as one informer has it.
type ObjectState struct {
	Informer   string `json:"informer"`
	Resource   string `json:"resource"`
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Version    string `json:"version"`
	// Deleted: it is gone as of Version, and there is no Object.
	Deleted bool `json:"deleted"`
	// Watermark of the informer.
	Watermark string `json:"watermark"`
	// Object is the JSON as it was sent: without what the configuration cuts, and redacted.
	Object json.RawMessage `json:"object,omitempty"`
	// Earlier is Object's own version where it is not Version: in a flood of updates the state has an earlier one (state.bodiesPerSecond).
	Earlier string `json:"earlier,omitempty"`
	// Problem says why it can't be read.
	Problem string `json:"problem,omitempty"`
}

// Object gives the last settled state of an object from each informer that knows it; none when nobody does. Its resource is given as the
// status has it ("deployments.apps"). It reads the state database alone, and may be called at any time until that is closed.
func (b *Bridge) Object(of, namespace, name string) ([]ObjectState, error) {
	var states []ObjectState
	watched := false
	for _, u := range b.roster.all() {
		if u.cfg.Type.String() != of || u.cfg.Namespace != "" && u.cfg.Namespace != namespace {
			continue
		}
		watched = true
		state, found, err := u.object(resource.MakeKey(namespace, name))
		if err != nil && !found {
			return nil, fmt.Errorf("informer %s: %w", u.name, err)
		}
		if found {
			states = append(states, state)
		}
	}
	if !watched {
		return nil, fmt.Errorf("%w %q in namespace %q", ErrNotWatched, of, namespace)
	}
	return states, nil
}

// ErrNotWatched is returned by Object for a resource that no informer has.
var ErrNotWatched = errors.New("no informer watches")

func (u *unit) object(key resource.Key) (ObjectState, bool, error) {
	stored, found, err := u.indexer.Stored(key)
	if !found {
		return ObjectState{}, false, err
	}
	namespace, name := key.Split()
	s := ObjectState{
		Informer: u.cfg.Informer, Resource: u.cfg.Type.String(), APIVersion: u.cfg.Type.APIVersion(), Namespace: namespace, Name: name,
		UID: stored.UID, Version: string(stored.Version), Deleted: stored.Deleted, Watermark: string(u.informer.Log().Status().Watermark), Object: stored.Body,
	}
	if err != nil {
		s.Problem = err.Error()
	}
	if obj, err := resource.Restore(stored.Body, u.cfg.Type); err == nil && obj.Version != stored.Version {
		s.Earlier = string(obj.Version)
	}
	return s, true, nil
}
