package bridge

import (
	"errors"
	"fmt"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
)

// ErrNotWatched is returned by Object for a resource that no informer has.
var ErrNotWatched = errors.New("no informer watches")

// Object returns the last settled state of an object from each informer that knows it; none when no
// informer does. Its resource is given as the status has it ("deployments.apps").
func (b *Bridge) Object(of, namespace, name string) ([]informer.ObjectState, error) {
	var states []informer.ObjectState
	watched := false
	for _, u := range b.pipelines.all() {
		c := u.Config()
		if c.Type.String() != of || c.Namespace != "" && c.Namespace != namespace {
			continue
		}
		watched = true
		state, found, err := u.Objects.Get(resource.MakeKey(namespace, name))
		if err != nil && !found {
			return nil, fmt.Errorf("informer %s: %w", u.Name(), err)
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
