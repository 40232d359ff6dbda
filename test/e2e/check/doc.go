// Package check compares what a bridge published with what a witness saw: every change there once,
// in the order of its object, with the payload and the attributes that docs/consumers.md promises.
//
// It takes in the changes of a truth.Ledger and the events of a reader, and hands out problems, in
// words. The expectations are written down here a second time, on purpose: nothing of the product
// is asked what it meant.
package check
