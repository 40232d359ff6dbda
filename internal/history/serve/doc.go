// Package serve is a read-only Kubernetes API over a history: kubectl, k9s and client-go work on a
// cluster as it was at a time, and see what followed as a watch.
//
// In: a history (package history) and a point in it. Out: HTTP, as an API server answers it:
// discovery, OpenAPI v3 for kubectl explain, get, list, watch, tables.
//
// # Promises
//
//   - It changes nothing, neither the history nor a cluster. Every write is refused with 405.
//   - Lists at a point are complete as far as the history is, and the same for every request.
//   - A watch gives the changes behind the point in the order of their versions, at the recorded
//     pace or another. With Live it follows the history that is being written: each object ends in
//     its newest state, and what changes several times within a second may come as one change.
//   - Only who has a token is answered, and reads objects of the namespaces and resources that the
//     token may read (Access). It knows no other rights: the cluster's RBAC does not matter. What
//     redaction took out is in no answer.
//   - Lists are sent as they are read: memory does not grow with them.
//
// The caller starts and stops the HTTP server; a watch ends with its request.
package serve
