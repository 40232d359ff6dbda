// Package handover hands work from one goroutine to another without a switch between them: while a
// consumer waits, its next step runs on the goroutine of the producer.
//
// A cluster has some hundred changes a second, so each stage of the pipeline is idle when the next
// change comes. To wake a goroutine for each stage costs more than what the stages do. A step does
// what needs no waiting. All else it leaves to the consumer, by giving false.
//
// There are never two steps of one consumer at once, and the consumer does not run while one does.
// So what the consumer owns, its step may use without a lock.
package handover
