// Package testkit holds what tests of several stages share: an API server scripted in Go that
// serves one resource type as kube-apiserver does, with faults on demand.
//
// A Server answers list (pages, continue tokens, resourceVersionMatch), watch (history, bookmarks,
// selectors) and WatchList, in the styles of built-in and of custom resources. By default it is
// reached over in-memory pipes, so that it works in a testing/synctest bubble; it is an
// http.Handler too, for httptest. Nothing happens in it by itself: bookmarks, expiry and faults
// come when the test asks for them. Faults are what its next requests meet, Streams are its open
// watches.
//
// A Broker is where events go: a log in memory, with faults on demand and by chance. Its Sessions
// are sinks, and fail the test when they are not used as sinks.Sink says.
//
// Besides it has the helpers that tests of many packages need: OK, Want, Eventually, Buffer,
// Metric, Allocated, Heap.
//
// All methods may be called concurrently. A Server started by NewServer ends with its test.
package testkit
