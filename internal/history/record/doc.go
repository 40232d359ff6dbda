// Package record is the form of what a history's database holds, between an event and the bytes
// under a key. A version is stored whole, or as the difference to the one before it. An entry of
// the timeline is stored as a summary of what the version changed.
//
// It knows no database: it makes bytes and reads them. Bytes that it did not make are an error.
package record
