// Package resource is the vocabulary that every stage speaks: a resource Type as the API server
// serves it, the Key of an object, its Version, and the Object itself, which stays the bytes that
// the API server sent.
//
// In: bytes of the API server, and rules for what to cut, redact or drop (parse.go, rules.go). Out:
// Objects, and what a list or watch says beside them: a Relist, an Unreadable.
//
// Nothing here runs, blocks or locks. An Object never changes after it was made, so it may be
// shared between goroutines.
package resource
