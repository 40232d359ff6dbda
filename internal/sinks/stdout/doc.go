// Package stdout is the sink that prints events: one structured CloudEvent per line for programs, or one short coloured line
// per event for people in front of a terminal.
//
// It takes events from a publisher and hands on lines, in the order given: all events are one lane (sinks.ByLane). An
// acknowledged event has been taken by the writer as a whole line; whether the other end of a pipe has read it is not
// known. A line that the writer took half of is completed before anything else is written, so lines are never mixed or torn.
//
// Publish blocks as long as the writer does. The sink starts no goroutine and never closes the writer.
package stdout
