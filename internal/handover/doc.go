// Package handover hands work from one goroutine to another without a switch between them: while a
// consumer waits, its next step runs on the goroutine of the producer.
//
// A cluster has some hundred changes a second, so each stage of the pipeline is idle when the next
// change comes. To wake a goroutine for each stage costs more than what the stages do. A step does
// what needs no waiting. All else it leaves to the consumer, by giving false.
//
// A consumer waits in Wait, on its goroutine, or it parks: then it has no goroutine until a step
// gives false, and the producer starts the next one.
//
//	state    event                  next       the consumer
//	away     Wait, Park             waiting    waits; but looks again where an Offer came since
//	away     Offer                  away       will look again
//	waiting  Offer                  running    its step runs on the producer's goroutine
//	running  Offer                  running    another step follows
//	running  the step gives true    waiting
//	running  the step gives false   away       Wait returns, or the goroutine of Park starts
//	waiting  Wait's context ends    away       Wait returns; while running, behind the step
//
// There are never two steps of one consumer at once, and the consumer does not run while one does.
// So what the consumer owns, its step may use without a lock.
//
// A Signal is for the other direction: it says to a part that it should look, as data that both
// share.
package handover
