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
//   - A watch gives the changes behind the point in the order of their versions, at the recorded pace
//     or another. With Live it follows the history that is being written: each object ends in its newest
//     state, and what changes several times within a second may come as one change.
//   - Only who has the token is answered. It knows no rights beyond that: who may ask reads all that the
//     history has, which is what redaction left.
//   - Lists are sent as they are read: memory does not grow with them.
//
// The caller starts and stops the HTTP server; a watch ends with its request.
package serve
