// Package keys are the keys of a history's database, without the database: each space of it has a
// function that makes a key, and one that takes it apart where somebody has to.
//
// The order of the keys is what questions are answered by: versions of one object are neighbours in
// the order of their Sequence, and entries of the timeline are by time.
package keys
