package app

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// standsBy makes a bridge one of several. Nothing is started.
func standsBy(t *testing.T) (*replicas, *bridge.Standby) {
	t.Helper()
	c := standby.LeaseConfig{Client: testkit.NewLeases().Client(), Namespace: "tools", Name: "bridge", Identity: "test"}
	lease, err := standby.NewLease(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &replicas{lease: lease, board: standby.NewProgressLease(c), name: "tools_bridge"}
	return r, r.bridge("1")
}

// No two processes have one identity.
func TestReplicaIdentity(t *testing.T) {
	first, err := identity("pod-0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := identity("pod-0")
	if err != nil {
		t.Fatal(err)
	}
	if first == second || !strings.HasPrefix(first, "pod-0_") {
		t.Errorf("got %s and %s", first, second)
	}
	if host, err := identity(""); err != nil || strings.HasPrefix(host, "_") {
		t.Errorf("got %q, %v without a configured one", host, err)
	}
}
