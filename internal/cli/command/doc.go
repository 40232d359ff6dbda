// Package command is what every command has: the flags that set keys of the configuration,
// --output, the log, the signals that end it, and the exit code that its error means. The commands
// themselves are in package cli and in the groups below it.
package command
