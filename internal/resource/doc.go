// Package resource is the vocabulary that every stage speaks: a resource Type as the API server
// serves it, the Key of an object, its Version, and the Object itself, which stays the bytes that
// the API server sent.
//
// Nothing here runs, blocks or locks. An Object never changes after it was made, so it may be
// shared between goroutines.
package resource
