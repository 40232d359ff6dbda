// Package streams reads what the sinks of a configuration have stored at their brokers: to check it
// (Verify), to make a history of it (Archive), and to find dead letters. It needs no bridge that
// runs.
package streams
