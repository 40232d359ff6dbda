// Package admin is the HTTP server by which people and machines look into a running bridge.
//
// It takes in two functions (is it ready, what is its status) and a Prometheus gatherer, and hands on:
//
//   - GET /healthz: 200 while the process answers. It says nothing about clusters and brokers: restarting a bridge cures neither, so
//     liveness must not hang on them.
//   - GET /readyz: 200, or 503 with a line for each reason; as JSON for those who accept it (or ask with ?format=json).
//   - GET /metrics: Prometheus.
//   - GET /status: JSON of what the bridge is doing.
//   - GET /debug/pprof/: Go's profiles, where the configuration says so.
//   - GET /tail: events while they are settled, as server-sent events; GET /object: the last settled state of one object.
//   - GET /: for browsers a page that shows all of it, live; for others the list of these.
//   - POST /control/…: what changes the running bridge, by a Controller (control.go), for those who may (guard.go).
//
// What it promises: every GET only reads. The functions are called in the goroutine of each request, concurrently, and must return
// soon. For reading there is neither authentication nor TLS, which is why the default address is loopback: an informer's status names
// namespaces, and a profile shows memory. Events and objects are shown to whoever is on this machine, and elsewhere only with the token.
//
// Commands need a token, and are taken from this machine only unless Access says otherwise: to listen on all addresses, for probes and metrics,
// opens nothing.
//
// Run starts and stops everything; a stopping server lets requests finish for a moment, then closes their connections.
package admin
