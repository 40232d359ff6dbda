package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	kubeControllerManager = "kube-controller-manager"
	kubeScheduler         = "kube-scheduler"

	// controllerStopGrace is short: the controllers keep nothing that a kill would lose.
	controllerStopGrace = 2 * time.Second
)

// controllerWatches are resources that a controller watches once it is at work.
var controllerWatches = map[string][]string{
	kubeControllerManager: {"deployments", "replicasets", "pods", "nodes", "serviceaccounts", "namespaces"},
	kubeScheduler:         {"pods", "nodes"},
	kwokController:        {"pods", "nodes"},
}

// checkWatching returns nil once the controller has opened its watches, according to the audit log
// after an offset. With their own ports closed, this is how we see that they are at work; and it
// leaves no trace in the cluster, as a pod made for the purpose would.
func checkWatching(auditLog string, from int64, controller string) error {
	seen, err := countRequests(auditLog, requestFilter{from: from, verb: "watch", userAgent: controller + "/"})
	if err != nil {
		return err
	}
	for _, resource := range controllerWatches[controller] {
		if !slices.ContainsFunc(seen.Requests, func(r request) bool { return r.Resource == resource }) {
			return fmt.Errorf("%s does not watch %s yet", controller, resource)
		}
	}
	return nil
}

// The controllers call as their usual users, but with an admin's certificate instead of the RBAC
// roles made for them: with those, the controller manager needs a service account and a token for
// each of its controllers, which takes longer than everything else at a start. Their own ports are
// closed; nobody scrapes them. There is one of each, so they do not elect a leader, and a restarted
// one works at once.
var controllerUsers = map[string]string{
	kubeControllerManager: "system:kube-controller-manager",
	kubeScheduler:         "system:kube-scheduler",
	kwokController:        "kwok-controller",
}

func controllerManagerFlags(l layout) []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(kubeControllerManager),
		"--secure-port=0",
		"--leader-elect=false",
		"--root-ca-file=" + l.pki("ca.crt"),
		"--service-account-private-key-file=" + l.pki("service-account.key"),
		"--cluster-signing-cert-file=" + l.pki("ca.crt"),
		"--cluster-signing-key-file=" + l.pki("ca.key"),
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		// A node whose heartbeat is late turns its pods to not ready. On a busy test machine that
		// would be noise.
		"--node-monitor-grace-period=5m",
	}
}

func schedulerFlags(l layout) []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(kubeScheduler),
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}
}
