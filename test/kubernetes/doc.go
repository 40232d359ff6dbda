// Command controlplane is a Kubernetes control plane for tests, in one program.
//
// It takes in a directory to work in and some flags; it hands on a kubeconfig, and a small HTTP API
// through which a test makes happen what a real cluster makes happen once a year: the history is
// compacted, the API server is killed, etcd is restored from a backup and the resourceVersion goes
// back.
//
// Everything inside is the real thing, built from its own Go module:
//
//	etcd                      embedded in this process                       etcd.go
//	kube-apiserver            child process                                  apiserver.go
//	kube-controller-manager   child process                                  controllers.go
//	kube-scheduler            child process                                  controllers.go
//	kwok                      child process, plays the nodes and their pods  kwok.go
//
// A child is this same program started again with "component NAME FLAGS..." (component.go). It is a
// process of its own, not a goroutine, because the Kubernetes components keep global state and
// cannot be started twice in one process, and because a test wants to kill -9 the API server.
//
// What it promises:
//
//   - The API server keeps its port when it is restarted, so clients reconnect to the address they
//     know.
//   - Operations of the control API run one at a time, in the order in which they arrive, and
//     return when the cluster is usable again.
//   - When it ends, for whatever reason, kill -9 included, its children end too (process.go).
//   - A child that dies by itself ends the whole program with exit code 1 and the name of the log
//     file to read.
//
// The story from top to bottom: main.go reads the flags (options.go), supervisor.go starts and
// stops the parts in order, control.go serves the control API, audit.go counts what clients asked
// for.
//
// It is for tests on one machine: it listens on the loopback interface only, and its etcd does not
// sync to disk.
package main
