// Package ratelimit decides when work may be done, and how one goroutine waits for another's.
//
//   - Queue is the workqueue of keys, with the Limiters that space the retries of one key.
//   - Backoff spaces the attempts at one shared thing. Bucket holds a sink to a rate.
//   - Breaker pauses all calls to a broker that can't be reached. One probe then finds out whether
//     the next calls may pass. An operator can hold them too.
//   - Budget bounds what several queues hold together, in bytes.
//   - Spot hands work to a goroutine without a switch to it (states below). Signal is for the
//     other direction: it makes a part look at data that both share.
//   - LogThrottle lets one line of a kind pass every ten seconds: 10,000 lanes that fail at once
//     are one fault.
//
// Promises of a Queue: a key is never with two workers; a key added while a worker has it comes
// again after that worker's Done. A waiting key is handed out once, however often it was added, in
// the order of the first Adds. Only GetBatch blocks. A queue that was shut down takes no new key
// and loses none: delayed keys are handed out at once, and a key that fails may be added again.
// client-go's queue hands out one key a call, and drops delayed keys when it is shut down.
//
// A consumer waits at a Spot in Wait, on its goroutine, or it parks: then it has no goroutine until
// a step returns false, and the producer starts the next one. A step does what needs no waiting.
// Two steps of one consumer never run at once, and the consumer does not run while one does, so a
// step uses what the consumer owns without a lock. To wake a goroutine for each stage would cost
// more than the stages do, with some hundred changes a second.
//
//	state    event                    next       the consumer
//	away     Wait, Park               waiting    waits; but looks again where an Offer came since
//	away     Offer                    away       will look again
//	waiting  Offer                    running    its step runs on the producer's goroutine
//	running  Offer                    running    another step follows
//	running  the step returns true    waiting
//	running  the step returns false   away       Wait returns, or the goroutine of Park starts
//	waiting  Wait's context ends      away       Wait returns; while running, after the step
//
// Nothing here starts a goroutine, but Park's next one and the timer of a Queue, which ShutDown
// stops. Everything but Backoff is safe for concurrent use.
package ratelimit
