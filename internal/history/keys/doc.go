// Package keys makes the keys of a history's database and takes them apart. It knows no database.
//
// The order of the keys answers the questions: versions of one object are neighbours in the order
// of their Sequence, and entries of the timeline are by time.
package keys
