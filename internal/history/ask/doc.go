// Package ask answers questions to histories: the versions of an object, what happened, what was
// there at a time, and what may be missing of the answer.
//
// In: for the admin server, the parameters of a request, and the histories that this process writes
// (Set.Serve). Out: reports for JSON. A command that opens a history itself asks a Question and
// prints what it finds. The command line and the admin server mean the same cluster, object and
// version by it.
//
// # Promises
//
//   - An answer of Set is bounded in its length, and the questions at a time take no more than half
//     of the processors from the sinks.
//   - A history is not closed while a question reads it: the end function of Serve waits.
//   - An error of a question says what to do, and has its HTTP status.
//
// Nothing here runs by itself. Several goroutines may ask at a time.
package ask
