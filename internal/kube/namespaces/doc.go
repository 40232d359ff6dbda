// Package namespaces watches the cluster's Namespaces once, for all informers that select some by
// their labels.
//
// In: the Namespaces, by a reflector of its own. Out: a Selection for each label selector. It says
// which namespaces are selected, since which version, and reports when that changes.
//
// Promised: a Selection is complete. It is unknown until the first list has ended. After that it is
// what the last list and the watch behind it say. Nothing is on disk: each start lists.
//
// The bridge starts Run, which waits until the first Select, and stops it by its context.
package namespaces
