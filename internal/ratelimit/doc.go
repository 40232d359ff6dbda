// Package ratelimit decides when work may be done: the workqueue of keys, the limiters that space
// retries of one key, a backoff for a whole connection, and the bucket that holds a sink to a rate.
//
// It takes in keys (objects or lanes) and hands them out to workers. The queue has keys only: the
// work for a key is the caller's, in order, so that collapsing equal keys loses nothing.
//
// # Promises
//
//   - A key is never with two workers. A key added while a worker has it comes again after that
//     worker's Done.
//   - A waiting key is handed out once, however often it was added. Keys come in the order of their
//     first Add.
//   - Add, AddAfter, AddRateLimited, Done, Return and Forget return at once. GetBatch blocks until
//     there is a key, the context ends or the queue was shut down.
//   - A queue that was shut down accepts no new key but loses none: waiting keys are still handed
//     out, delayed keys are handed out at once, and a key that fails during the drain may be added
//     again, with its delay.
//
// The limiters are client-go's (util/workqueue), with jitter. They remember a failing key until
// Forget. The queue is our own, in client-go's words. Theirs hands out one key per call, and drops
// delayed keys when it is shut down. Waiting for the workers of a queue that was shut down is the
// caller's.
//
// # Start and stop
//
// A Queue is usable as soon as NewQueue returns and starts no goroutine; one timer serves all
// delayed keys. ShutDown stops the timer. Everything here but Backoff is safe for concurrent use.
package ratelimit
