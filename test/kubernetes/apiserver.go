package main

import (
	"strconv"
	"time"
)

const (
	kubeAPIServer = "kube-apiserver"

	// apiServerStopGrace is how long the API server may take to stop. It needs a second; more than
	// this means that it hangs.
	apiServerStopGrace = 10 * time.Second
)

// apiServerFlags are the flags of kube-apiserver. Its defaults are kept wherever a client could
// see the difference: watch cache, WatchList, priority and fairness are those of a real cluster.
func apiServerFlags(l layout, o options, port int, etcdURL string) []string {
	flags := []string{
		"--etcd-servers=" + etcdURL,
		"--etcd-compaction-interval=" + o.etcdCompactionInterval.String(),
		"--event-ttl=" + o.eventTTL.String(),

		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + l.pki("apiserver.crt"),
		"--tls-private-key-file=" + l.pki("apiserver.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--authorization-mode=RBAC",

		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.pki("service-account.key"),
		"--service-account-signing-key-file=" + l.pki("service-account.key"),

		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		// Asked to stop, the API server ends the watches. By default it would leave them open and
		// silent for up to a minute, or until it is killed.
		"--shutdown-watch-termination-grace-period=2s",
		// Endpoints of the kubernetes Service must not be loopback addresses, and we have no
		// others.
		"--endpoint-reconciler-type=none",

		"--audit-policy-file=" + l.auditPolicy(),
		"--audit-log-path=" + l.auditLog(),
		"--audit-log-maxsize=0", // one file, never rotated: requests are counted in it
		"--audit-log-mode=blocking",
	}
	if !o.controllers {
		// Nobody makes service accounts then, and without one no pod could be created.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return append(flags, o.apiServerArgs...) // last: they win
}
