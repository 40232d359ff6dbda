// Package query answers what a history is asked: what an object was at a time, what changed, what
// lived in a namespace, and what may be missing of the answer.
//
// In: a DB, the database that package history opens and writes. Out: iterators and values. Each
// answer is as of the moment when it began, and streams, so that memory does not follow its length.
//
// Nothing here runs by itself. Several goroutines may ask at a time.
package query
