package bridge

import (
	"context"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
)

// Plan is what is to be watched, by what the API server serves now.
type Plan struct {
	// Units are what the configuration selects and the API server serves.
	Units []informer.Config
	// Unknown reports of a resource that is not in Units whether that says nothing, since its API
	// group does not answer. nil: none is.
	Unknown func(resource.Type) bool
}

// Planner asks the API server what there is to watch. It blocks until the answer is there or ctx
// ends.
type Planner func(ctx context.Context) (Plan, error)

// knows reports whether a resource that is not in the plan is one that the API server does not
// serve.
func (p *Plan) knows(t resource.Type) bool { return p.Unknown == nil || !p.Unknown(t) }

// byName are the plan's units.
func (p *Plan) byName() map[string]informer.Config {
	units := make(map[string]informer.Config, len(p.Units))
	for _, u := range p.Units {
		units[u.Name()] = u
	}
	return units
}
