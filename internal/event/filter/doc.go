// Package filter decides which changes are sent: by operation, by what an update touches, and by a
// CEL expression.
//
// In: changes, from an informer's controller. Out: for each, whether it is kept back, and why. A
// change that is kept back is settled: it counts as known, and is the old object of the next one.
//
// # Promises
//
//   - Nothing is kept back by mistake: where an expression fails, or costs too much, the change is
//     sent, and the error is the caller's to count. An update whose old object is not known is
//     never taken for noise.
//   - An expression decodes only what it names: of object and old the members it walks through, of
//     meta nothing.
//   - The cost of one evaluation is bounded. Comparing two objects takes time linear in their size.
//     Below 128 levels == compares bytes, as ignored paths do.
//
// Nothing here runs or blocks. A Filter and an Expression are immutable and may be used
// concurrently.
package filter
