package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/sinks"
)

// replicas is what several bridges share that stand by for each other.
type replicas struct {
	lease *standby.Lease
	board *standby.ProgressLease
	name  string // of the lease, with its namespace, as a token
}

// newReplicas is nil where the configuration knows no others. It asks nobody.
func (a *assembler) newReplicas() (*replicas, error) {
	s := &a.config.Standby
	if !s.Enabled {
		return nil, nil
	}
	k := &a.config.Kubernetes
	// no event of an informer may hold the lease up
	rc, _, err := kube.RESTConfig(k.Kubeconfig, k.Context, 0, 0)
	if err != nil {
		return nil, err
	}
	rc.Timeout = s.RenewDeadline / 2 // so that a renewal that hangs leaves time for another
	client, err := kube.NewLeases(rc)
	if err != nil {
		return nil, err
	}
	identity, err := identity(s.Identity)
	if err != nil {
		return nil, err
	}
	shard, err := shardOf(a.config)
	if err != nil {
		return nil, err
	}
	namespace, name := rights.LeaseNamespace(a.config), standby.LeaseName(s.Lease.Name, shard)
	c := standby.LeaseConfig{
		Client: client, Namespace: namespace, Name: name, Identity: identity,
		Duration: s.LeaseDuration, RenewDeadline: s.RenewDeadline, RetryPeriod: s.RetryPeriod,
		Log: a.log,
	}
	lease, err := standby.NewLease(c)
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	return &replicas{lease: lease, board: standby.NewProgressLease(c), name: namespace + "_" +
		name}, nil
}

// identity of this process: no other one ever has the same, also not this one's next life.
func identity(configured string) (string, error) {
	if configured == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("the host has no name; set standby.identity: %w", err)
		}
		configured = host
	}
	return configured + "_" + strings.ToLower(rand.Text()[:10]), nil
}

// bridge returns the part for the bridge; nil for none.
func (r *replicas) bridge(version string) *bridge.Standby {
	if r == nil {
		return nil
	}
	return &bridge.Standby{Lease: r.lease, ProgressLease: r.board, Version: version}
}

// Fence is what keeps a replica that led before out of a stream; nil for none.
func (r *replicas) fence() *sinks.Fence {
	if r == nil {
		return nil
	}
	return &sinks.Fence{Name: r.name, Confirm: r.lease.Confirm}
}

// confirm asks whether this replica leads; nil where there are no others.
func (r *replicas) confirm() func(context.Context) error {
	if r == nil {
		return nil
	}
	return r.lease.Confirm
}
