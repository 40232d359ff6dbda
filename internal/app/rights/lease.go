package rights

import (
	"cmp"
	"strings"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

// LeaseNamespace is where the lease lies.
func LeaseNamespace(c *config.Config) string {
	return cmp.Or(c.Standby.Lease.Namespace, kube.Namespace(c.Kubernetes.Kubeconfig,
		c.Kubernetes.Context), "default")
}

// leaseNeeds are the rights that bridges need which stand by for each other: those of all shards,
// which have one service account.
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

// allShards are the shards that the objects are split between: the one of everything where they are
// not.
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
