// Package sinktest is the specification of sinks.Sink as tests: every sink passes Run, or declares
// with a reason which promise it does not make.
//
// It takes a Harness, which makes empty brokers with sinks over them and reads back what was
// stored, with a reader that is not the sink's own code. Attributes are compared after the
// CloudEvents SDK has parsed them, payloads byte for byte. The suite plays the publisher: it holds
// the gate that the sink's Order asks for, and resends what is answered Retry or Reconnect, so
// order and completeness are tested under the rules of production.
//
// Nothing runs before Run is called, and nothing after it has returned.
package sinktest
