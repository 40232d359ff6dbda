// Controlplane is a Kubernetes control plane for tests: one program with kube-apiserver,
// kube-controller-manager and kube-scheduler, over an embedded etcd, and kwok
// (https://kwok.sigs.k8s.io) playing the nodes. A Deployment becomes running Pods, without a
// kubelet. Named kubectl, through a link, it is kubectl.
//
//	make controlplane                   # 4 minutes the first time
//	bin/controlplane --dir /tmp/cp &    # ready in 3 s; --help lists the flags
//	kubectl --kubeconfig /tmp/cp/admin.kubeconfig create deployment web --image=any
//
// When a pod that is created would run at once, it writes a line of JSON with its addresses to
// standard output and the --ready-file. An error names the log file to read. Whatever ends the
// program, its children end too. A directory of an earlier run continues that cluster.
//
// Its control API listens on the loopback interface, without authentication. An operation returns
// when the cluster is usable again, with etcd's revision (the highest resourceVersion) and the
// seconds it took:
//
//   - POST /compact: etcd forgets its history. The watch cache still serves what it has: restart
//     the API server too, and an older version gets 410.
//   - POST /restart-apiserver, /stop-apiserver, /start-apiserver: the same port; ?signal=KILL
//     cuts connections. Controllers take seconds to come back, up to 30 after minutes.
//   - POST /snapshot, /restore: ?name=x. Versions go back, and are used a second time.
//   - POST /pause-controllers, /resume-controllers: in between, only the test changes the
//     cluster.
//   - GET /requests: from the audit log, by verb, user, group, resource, namespace, code, parts
//     of userAgent and uri; from=END of an earlier answer. A watch counts when it starts.
//   - GET /status, /healthz: processes, log files, revision, version.
//
// Other than in production: nodes count as lost after 5 minutes, the kubernetes Service has no
// endpoints, etcd does not sync to disk, and there are no aggregated API servers. go.mod pins
// k8s.io/kubernetes and, by replace, the modules of its tree: change all together, and etcd to the
// version in Kubernetes' own go.mod.
package main
