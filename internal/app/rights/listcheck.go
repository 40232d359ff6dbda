package rights

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
)

// ListCheck asks once whether the bridge may list what it watches. A missing watch shows at once; a
// missing list would show at the first restart or gap only, since a first snapshot comes by a watch
// too. It is a service of the bridge, has nothing to do when nothing is missing, and never fails
// it.
type ListCheck struct {
	resolver *kube.Resolver
	Units    []informer.Config // at the start
	log      *slog.Logger
	pause    time.Duration          // between two looks at what is missing; after errors the first one
	changes  chan []informer.Config // holds one: the units of a configuration that has changed

	mu      sync.Mutex
	missing []listRight // guarded by mu
}

// NewListCheck makes the check. Give it units before it runs.
func NewListCheck(resolver *kube.Resolver, log *slog.Logger) *ListCheck {
	return &ListCheck{
		resolver: resolver, log: log, pause: 10 * time.Second,
		changes: make(chan []informer.Config, 1),
	}
}

// Change starts again with other units.
func (c *ListCheck) Change(units []informer.Config) {
	select {
	case <-c.changes: // nobody has looked at it
	default:
	}
	c.changes <- units
}

// listRight is the right that a unit needs.
type listRight struct {
	kube.Right
	unit string
}

// WaitReady has nothing to wait for.
func (c *ListCheck) WaitReady(context.Context) error { return nil }

// maxPause is the longest pause after an error. A right that was granted meanwhile counts as
// missing for so long.
const maxPause = 2 * time.Minute

// Run asks until ctx ends.
func (c *ListCheck) Run(ctx context.Context) error {
	open := rightsToList(c.Units)
	reported := map[string]bool{} // by unit
	backoff := ratelimit.Backoff{Initial: c.pause, Max: maxPause}
	failed := "" // the last error; it is logged once
	for {
		pause := c.pause
		missing, err := c.findMissing(ctx, open, reported)
		if err == nil {
			open, failed = missing, ""
			backoff.Reset()
		} else {
			if pause = backoff.Next(); failed != err.Error() && ctx.Err() == nil {
				c.log.Info("can't ask for the bridge's rights", "err", err)
			}
			failed = err.Error()
		}
		var again <-chan time.Time
		if len(open) > 0 { // also what could not be asked: it may be missing, or no longer
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case units := <-c.changes:
			open = rightsToList(units)
		case <-again:
		}
	}
}

// rightsToList returns the rights to list that units need.
func rightsToList(units []informer.Config) (list []listRight) {
	for i := range units {
		u := &units[i]
		right := kube.Right{
			Verb: "list", Group: u.Type.Group, Resource: u.Type.Resource,
			Namespace: u.Namespace, Name: onlyName(u.FieldSelector),
		}
		list = append(list, listRight{right, u.Name()})
		if u.NamespaceSelector != "" {
			list = append(list, listRight{
				kube.Right{Verb: "list", Resource: "namespaces"},
				u.Name(),
			})
		}
	}
	return list
}

// findMissing asks for the rights, and gives those that are missing.
func (c *ListCheck) findMissing(
	ctx context.Context, rights []listRight, reported map[string]bool,
) (missing []listRight, err error) {
	for _, right := range rights {
		allowed, why, err := c.resolver.Allowed(ctx, right.Right)
		if err != nil {
			return nil, err
		}
		if allowed {
			continue
		}
		missing = append(missing, right)
		if !reported[right.unit] {
			reported[right.unit] = true
			c.log.Warn("a right is missing: it is needed after a restart and to heal gaps; "+
				"'bridge rbac' prints the roles for the configuration", "informer", right.unit,
				"right", right.String(), "reason", why)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = missing
	return missing, nil
}

// Reasons returns why the bridge is not ready, by missing rights.
func (c *ListCheck) Reasons() []admin.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []admin.Reason
	for _, right := range c.missing {
		list = append(list, admin.Reason{
			What: "informer " + right.unit,
			Message: "not allowed to " + right.String() + "; 'bridge rbac' prints the roles for " +
				"the configuration",
		})
	}
	return list
}

// LeaseNamespace returns where the lease lies.
func LeaseNamespace(c *config.Config) string {
	return cmp.Or(c.Standby.Lease.Namespace, kube.Namespace(c.Kubernetes.Kubeconfig,
		c.Kubernetes.Context), "default")
}

// leaseNeeds returns the rights that bridges need which stand by for each other: those of all
// shards, which have one service account.
func leaseNeeds(c *config.Config) []Need {
	if !c.Standby.Enabled {
		return nil
	}
	const group, resource = "coordination.k8s.io", "leases"
	namespace := LeaseNamespace(c)
	list := []Need{{kube.Right{
		Verb: "create", Group: group, Resource: resource,
		Namespace: namespace,
	}, "standby.lease"}}
	for _, shard := range allShards(c) {
		lease := standby.LeaseName(c.Standby.Lease.Name, shard)
		for _, name := range []string{lease, standby.ProgressLeaseName(lease)} {
			for _, verb := range []string{"get", "update"} {
				list = append(list, Need{kube.Right{
					Verb: verb, Group: group, Resource: resource,
					Namespace: namespace, Name: name,
				}, "standby.lease"})
			}
		}
	}
	return list
}

// allShards returns the shards that the objects are split between: the one of everything where they
// are not.
func allShards(c *config.Config) []resource.Shard {
	_, count, _ := strings.Cut(c.Shard, "/")
	first, err := resource.ParseShard("0/" + count)
	if err != nil { // of no shards: a checked configuration has a count
		return []resource.Shard{{}}
	}
	list := make([]resource.Shard, first.Count)
	for i := range list {
		list[i] = resource.Shard{Index: i, Count: first.Count}
	}
	return list
}
