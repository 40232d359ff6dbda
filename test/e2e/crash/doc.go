// Package crash has what a test needs that kills a bridge over and over: changes that never pause,
// brokers that outlive the bridge and can be cut off, and findings about what has arrived.
//
// A Churn changes objects of one namespace until it is stopped. A Gate stands before a broker and
// cuts it off. Judge compares what a sink holds with what witnesses saw. Unlike package check it
// knows of gaps: versions that the bridge itself has reported to be missing may be missing, and
// whatever is missing, what arrived has to be in order and end in the state of the cluster.
package crash
