// Package stdout is the sink that prints events: one structured CloudEvent per line for programs,
// or one short coloured line per event for people in front of a terminal.
//
// It takes events from a publisher and hands on lines, in the order given: all events are one lane
// (sinks.ByLane). An acknowledged event has been taken by the writer as a whole line; whether the
// other end of a pipe has read it is not known. A line that the writer took half of is completed
// before anything else is written, so lines are never mixed or torn.
//
// Publish blocks until the writer has taken the lines, or its context ends: then the write
// continues without it, in the goroutine that each call starts for its write, and what it takes is
// not written again. Whoever stops reading so holds up the events, and not the end of the bridge.
// The writer is never closed.
package stdout
