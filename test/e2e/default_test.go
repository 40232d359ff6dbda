package e2e_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// Without informers and sinks in the configuration, everything but Leases and Events goes to an
// embedded NATS server. Only its address is another than the default here, since the machine may
// have a NATS server already.
func TestDefaultConfiguration(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	address, err := harness.FreeAddress()
	must(t, err)
	l.createConfigMap("before", "1")
	collections := append(l.workloads()[:5:5], truth.Cluster("clusterroles", rbacv1.GroupName, "v1"))
	ledger := l.witness(collections...)
	b := l.bridge("bridge", "", with(map[string]string{"BRIDGE_SINKS_NATS_NATS_SERVERS": "nats://" + address}))
	l.start(b)
	l.liveADeployment("web", 2)

	stream := &read.JetStream{URL: "nats://" + address, Stream: "K8S"}
	o := check.Options{Informers: informerOf("all", collections...), Only: func(resource, namespace, name string) bool {
		return namespace == l.namespace && isOneOf(resource, collections) || resource == "clusterroles.rbac.authorization.k8s.io" && strings.HasPrefix(name, "system:controller:")
	}}
	events := l.complete("everything", stream, ledger, o)
	resources := map[string]bool{}
	for i := range events {
		resources[events[i].GroupResource()] = true
	}
	for _, r := range []string{"nodes", "serviceaccounts", "endpointslices.discovery.k8s.io", "namespaces"} {
		if !resources[r] {
			t.Errorf("there is no event of %s", r)
		}
	}
	if resources["events"] || resources["events.events.k8s.io"] || resources["leases.coordination.k8s.io"] {
		t.Error("there are events of Events or Leases")
	}
	l.stop(b)
}

func isOneOf(resource string, collections []truth.Collection) bool {
	for _, c := range collections {
		if c.String() == resource {
			return true
		}
	}
	return false
}
