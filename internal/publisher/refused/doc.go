// Package refused keeps events that neither a sink nor its dead letters take, in files that an
// operator can read and send again. The files are the last trace of a change.
//
// In: a refused event, and why it was refused (Keep). Out: a file of its own for each event,
// <dir>/<sink>/<digest of the id>.json, with the reasons and the event as a structured CloudEvent;
// and for the commands that list, send and remove, Entries (List, Read).
//
// # Promises
//
//   - After Keep has returned nil, the file survives a crash. The same event twice is one file.
//   - The files together have a bound. Beyond it Keep returns ErrFull and keeps nothing: the caller
//     holds the event until there is room. Removed files make room within seconds.
//   - Parse returns the event as it was handed to the sink, byte for byte.
//
// A Folder has no goroutine and nothing to close. Its methods may be called concurrently.
package refused
