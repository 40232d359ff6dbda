package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube"
)

// listCheck asks once whether the bridge may list what it watches. A missing watch shows at once; a missing list would show at the first
// restart or gap only, since a first snapshot comes by a watch too. It is a service of the bridge, ends when nothing is missing, and never fails it.
type listCheck struct {
	resolver *kube.Resolver
	units    []bridge.UnitConfig
	log      *slog.Logger
	pause    time.Duration // between two looks at what is missing

	mu      sync.Mutex
	missing []listRight // guarded by mu
}

// listRight is the right that a unit needs.
type listRight struct {
	kube.Right
	unit string
}

// WaitReady has nothing to wait for.
func (c *listCheck) WaitReady(context.Context) error { return nil }

// Run asks until nothing is missing, or ctx ends.
func (c *listCheck) Run(ctx context.Context) error {
	var open []listRight
	for i := range c.units {
		u := &c.units[i]
		right := kube.Right{Verb: "list", Group: u.Type.Group, Resource: u.Type.Resource, Namespace: u.Namespace, Name: onlyName(u.FieldSelector)}
		open = append(open, listRight{right, u.Name()})
		if u.NamespaceSelector != "" {
			open = append(open, listRight{kube.Right{Verb: "list", Resource: "namespaces"}, u.Name()})
		}
	}
	told := map[string]bool{} // by unit
	for {
		var err error
		if open, err = c.look(ctx, open, told); err != nil {
			return nil // told, and no reason to stop
		}
		if len(open) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.pause):
		}
	}
}

// look asks for the rights, and gives those that are missing.
func (c *listCheck) look(ctx context.Context, rights []listRight, told map[string]bool) (missing []listRight, err error) {
	for _, right := range rights {
		allowed, why, err := c.resolver.Allowed(ctx, right.Right)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				c.log.Info("can't ask for the bridge's rights", "err", err)
			}
			return nil, err
		}
		if allowed {
			continue
		}
		missing = append(missing, right)
		if !told[right.unit] {
			told[right.unit] = true
			c.log.Warn("a right is missing: it is needed after a restart and to heal gaps; 'bridge rbac' prints the roles for the configuration", "informer", right.unit, "right", right.String(), "reason", why)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = missing
	return missing, nil
}

// reasons are why the bridge is not ready, by missing rights.
func (c *listCheck) reasons() []admin.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []admin.Reason
	for _, right := range c.missing {
		list = append(list, admin.Reason{What: "informer " + right.unit, Message: "not allowed to " + right.String() + "; 'bridge rbac' prints the roles for the configuration"})
	}
	return list
}
