// Package undelivered keeps events that neither a sink nor the place of its dead letters takes, in
// files that an operator can read and send again: the last trace of a change.
//
// A Folder takes in events and writes each to a file of its own, <dir>/<sink>/<digest of the
// id>.json: what refused it and why, and the event as a structured CloudEvent. Keep returns nil
// once the file will be there after a crash. The same event twice is one file. The files together
// have a bound; beyond it Keep fails with ErrFull, and whoever called it still has the event. Files
// that are taken away make room.
//
// A Folder has no goroutine and nothing to close. Its methods may be called concurrently.
package refused
