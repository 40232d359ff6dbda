// Package verify checks a stream of events against what the bridge promises, without its word.
//
// In: the events of a stream, each lane in its order, through Checker.Feed; what else the stream
// holds, through Other; and, to compare the final state, the objects of the cluster, through
// Checker.Compare. Out: a Report.
//
// # What is checked
//
// Of each object, as an informer names it: that every event's previous version is in the stream
// (chain.go), and that events come in the order of their sequence. What comes again has the same
// data. A delete follows an add, and another object of the name a delete. Of each event: that id,
// sequence, key and data say the same as the other attributes. What the stream
// itself reports as missing (gap events, dead letters) is no fault.
//
// A fault about a chain is judged at the end: a late event may fill the hole, and with Kafka the
// event that reports a drop may lie in a partition that is read later.
//
// # Memory
//
// It follows the number of objects, not of events: 4 versions of each object are kept to recognize
// what comes again. An older one is a repeat where the chain is whole, since everything before the
// newest version was there; its data is not compared then, and the report counts it. Faults are
// kept up to a bound, and counted beyond it.
//
// A Checker is used by one goroutine. It starts nothing and never blocks.
package verify
