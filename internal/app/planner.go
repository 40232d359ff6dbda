package app

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
)

// planner says what there is to watch, at the start and while the bridge runs.
type planner struct {
	informers  []config.Informer
	selections []kube.Selection // by informer; names mean what they meant at the start
	named      []map[string]bool
	templates  []informer.Config // by informer, without type and namespace
	resolver   *kube.Resolver
	redactor   *resource.Redactor
}

// newPlanner makes the planner of a configuration. The names of informers that are in the one
// before as they are, which may be nil, continue to mean what they mean there.
func newPlanner(
	c *config.Config, d discovered, redactor *resource.Redactor, shard resource.Shard,
	before *planner,
) (*planner, error) {
	p := &planner{informers: c.Informers, resolver: d.resolver, redactor: redactor}
	for i := range c.Informers {
		inf := &c.Informers[i]
		template, err := unit(inf, redactor)
		if err != nil {
			return nil, fmt.Errorf("informer %s: %w", inf.Name, err)
		}
		template.Shard = shard
		p.templates = append(p.templates, template)
		if j := before.has(inf); j >= 0 {
			p.selections = append(p.selections, before.selections[j])
			p.named = append(p.named, before.named[j])
			continue
		}
		s := rights.Selection(inf)
		s.Names = d.catalog.Pin(s.Names)
		p.selections = append(p.selections, s)
		p.named = append(p.named, namedOnly(d.catalog, s))
	}
	return p, nil
}

// same reports whether an informer is in the planner before as it is, and redacts with the same
// key.
func (p *planner) same(i int, before *planner) bool {
	j := before.has(&p.informers[i])
	return j >= 0 && p.templates[i].Redaction == before.templates[j].Redaction
}

// has is the index of an informer that is there as it is, -1 for none.
func (p *planner) has(inf *config.Informer) int {
	if p == nil {
		return -1
	}
	return slices.IndexFunc(p.informers,
		func(other config.Informer) bool { return reflect.DeepEqual(other, *inf) })
}

// namedOnly are the resources that a selection has by their names.
func namedOnly(catalog *kube.Catalog, s kube.Selection) map[string]bool {
	named := map[string]bool{}
	for _, name := range s.Names {
		if kube.IsWildcard(name) {
			continue
		}
		// it was resolved before, and what was wrong is reported
		types, _ := catalog.Resolve(kube.Selection{Names: []string{name}})
		for _, t := range types {
			named[t.String()] = true
		}
	}
	return named
}

// ask asks the API server. What it can't find is not in the plan: a name that was found at the
// start may be back later.
func (p *planner) ask(ctx context.Context) (bridge.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.resolver.Ready(ctx); err != nil && kube.Classify(err) != kube.Forbidden {
		return bridge.Plan{}, err // one that is just starting does not know all custom resources
	}
	catalog, err := p.resolver.Discover(ctx)
	if err != nil {
		return bridge.Plan{}, err
	}
	types := make([][]resource.Type, len(p.selections))
	for i, s := range p.selections {
		types[i], _ = catalog.Resolve(s)
	}
	return p.plan(catalog, types), nil
}

// plan makes the units, one for each resource of an informer in each of its namespaces.
func (p *planner) plan(catalog *kube.Catalog, types [][]resource.Type) bridge.Plan {
	var plan bridge.Plan
	for i := range p.informers {
		inf := &p.informers[i]
		for _, t := range types[i] {
			for _, namespace := range rights.Namespaces(inf) {
				u := p.templates[i]
				u.Type, u.Namespace, u.Named = t, namespace, p.named[i][t.String()]
				plan.Units = append(plan.Units, u)
			}
		}
	}
	if down := catalog.Unavailable(); len(down) > 0 {
		plan.Unknown = func(t resource.Type) bool {
			for gv := range down {
				if gv.Group == t.Group {
					return true
				}
			}
			return false
		}
	}
	return plan
}
