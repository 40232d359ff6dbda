// Package admin is the HTTP server by which people and machines look into a running bridge.
//
// In: functions (is the bridge ready, what is its status), an Inspector, a Historian, a Controller,
// and a Prometheus gatherer. Out:
//
//	GET /healthz        200 while the process answers. It depends on no cluster and no broker:
//	                    a restart fixes neither.                                       open
//	GET /readyz         200, or 503 with a line for each reason; JSON for who accepts it  open
//	GET /metrics        Prometheus                                                     open
//	GET /               a page for browsers that shows the rest, a list for others     open
//	GET /status         JSON of what the bridge is doing                               reader
//	GET /tail           events as they are settled, as server-sent events              reader
//	GET /object         the last settled state of one object                           reader
//	GET /objects        the objects that have a value of an index                      reader
//	GET /debug/pprof/   Go's profiles, where the configuration asks for them           reader
//	POST /control/…     commands for a Controller (control.go)                         commander
//
// What it promises: every GET only reads. The functions are called in the goroutine of each
// request, concurrently, and must return soon.
//
// Who is admitted (access.go):
//
//	open        everybody. Probes and Prometheus carry no token.
//	reader      who has the token; and without it, where Access.OwnUser says so, processes of the
//	            bridge's own user on the same machine.
//	commander   who has the token, with a request that no foreign page can make a browser send.
//
// Readers and commanders must be on this machine, at a loopback address and not behind a proxy,
// unless Access.Remote is set. A server that listens on loopback answers to no foreign host name on
// any route.
//
// Run starts and stops everything. A stopping server lets requests finish for a moment, then closes
// their connections.
package admin
