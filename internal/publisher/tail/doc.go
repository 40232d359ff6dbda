// Package tail lets people look at events while they are settled.
//
// It takes in the items that publishers settle, and hands on copies of them to whoever watches at
// that moment: the attributes, and the payload as it was sent where that is asked for. What the
// configuration takes out of objects was taken out long before.
//
// What it promises: no stage waits for those who look. Without a Watcher, Settled is one
// atomic load. With one, what its filter lets through is copied into its buffer, which is bounded
// in events and bytes; what does not fit is counted, and Next returns the count. So a Watcher sees
// events in the order in which they were settled, of each sink, but perhaps not all of them.
//
// It has no goroutine; nobody starts or stops it.
package tail
