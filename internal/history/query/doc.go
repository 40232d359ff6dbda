// Package query answers what a history is asked: what an object was at a time, what changed, what
// lived in a namespace, and what may be missing of the answer.
//
// It reads a Source, the database that somebody else writes: each answer is as of the moment when
// it began, and streams, so that memory does not follow its length. Several goroutines may ask at a
// time.
package query
