// Package sinkmaker makes sinks out of their sections of the configuration, with the files, tokens
// and certificates that these name. It also answers what else is asked about a sink of a
// configuration: where it sends to, what its events look like, how its broker is reached, and
// whether that is as it has to be.
package sinkmaker
