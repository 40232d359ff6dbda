// Package logthrottle keeps a fault that hits many messages or objects from filling the log: 10,000
// lanes that fail at once are one fault, and a tenant may create any number of objects that can't
// be read.
//
// A Throttle takes in lines of one kind. One of them passes every ten seconds, with how many were
// suppressed before it. The others are debug lines.
//
// It never blocks but for the handler of the log, and is safe for concurrent use.
package logthrottle
