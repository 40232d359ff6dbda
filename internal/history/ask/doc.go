// Package histories answers the admin server's questions to the histories that this bridge writes:
// the versions of an object, what happened, what was there at a time. The answers are bounded, and
// take no more than a share of the processor from the sinks.
package ask
