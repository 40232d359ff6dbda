// Package reflector keeps one (resource, namespace, selector) in step with the API server.
//
// It takes in the answers of list and watch requests, splits them into objects while they are being read, and hands
// what it reads to a Store (an interface declared here), which is what stands behind it in the pipeline.
//
// # What it promises
//
//   - Order: the Store is called from one goroutine, in the order in which the API server told things.
//   - Completeness: every watch event is handed on, or a Replace follows that makes up for those that could not be. An
//     event that can't be understood is quarantined and reconciled, never skipped; an item of a list is quarantined and spared, which
//     says that its object is not gone. A later state of an object that was spared is quarantined alone. What the Store has of a list counts only
//     from EndReplace on; a list that breaks off is given up by the next BeginReplace. An API server that refuses
//     (401, 403, 404, 5xx) is never taken for an empty collection.
//   - Duplicates: a watch starts again from the last version that the Store took, so after a cut the Store may see an event
//     a second time only where several events bear one version.
//   - Resuming: with Config.From set, the watch starts there and nothing is listed, but for one probe (limit=1) that
//     shows whether the server's history went back in time; and so after each watch that failed or ended before its time.
//   - Blocking: a Store that blocks stops the reading; a reader that blocks for more than about a minute will find its
//     watch closed, and maybe its version expired.
//   - Memory: one frame or one item of a list at a time, however large the collection is.
//
// New checks and starts nothing. Run does all the work on the caller's goroutine and returns when its context ends or the
// Store fails; a Reflector runs once. Status may be called from any goroutine at any time.
package reflector
