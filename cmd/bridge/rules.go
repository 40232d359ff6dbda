package main

import (
	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/filter"
	"github.com/kubebridge/bridge/internal/resource"
)

// informerRules are what an informer keeps back from all its sinks.
func informerRules(inf *config.Informer) (filter.Rules, error) {
	r, err := rules(inf.Operations, inf.Filter)
	if err != nil {
		return r, err
	}
	r.On, r.Heartbeats = inf.On, inf.IgnoreHeartbeats
	r.Ignore, err = paths(inf.IgnoreChanges)
	return r, err
}

// rules of operations and an expression, each of which may be left out.
func rules(operations []string, expression string) (r filter.Rules, err error) {
	for _, op := range operations {
		r.Operations = append(r.Operations, event.Op(op))
	}
	if expression != "" {
		r.Expression, err = filter.Compile(expression)
	}
	return r, err
}

func paths(texts []string) ([]resource.Path, error) {
	var paths []resource.Path
	for _, text := range texts {
		p, err := resource.ParsePath(text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}
