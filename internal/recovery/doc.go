// Package recovery decides what a start of a pipeline does: with what it reads, and which gap it
// reports before that. It takes in what the start finds, on disk, in the configuration, at other
// replicas and at the brokers, and gives one Case.
//
// Recover is one switch, and the table "Starting" in docs/design.md is its test's input. It is
// asked twice: the pipeline asks how to read before it starts, and the controller asks for the gap
// when the first list begins, since only then other replicas and brokers have answered.
package recovery
