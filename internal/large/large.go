// Package large says what a large object is, and reports its arrival to whoever watches the
// processors.
//
// An object of half a megabyte is read, decided, compared and compressed for ten milliseconds and
// more. Where as many large ones are worked on as there are processors, everything else waits for
// that: small objects of others too. Waits for a processor show it late, and only by chance, since
// the runtime notes one of eight.
package large

// Bytes is from which size on an object is large: work on it takes a millisecond.
const Bytes = 64 << 10

var seen = make(chan struct{}, 1)

// Note says that an object of a size has come. It never blocks, and may be called concurrently.
func Note(bytes int) {
	if bytes < Bytes {
		return
	}
	select {
	case seen <- struct{}{}:
	default:
	}
}

// Seen has an element once a large object came since the last one was received.
func Seen() <-chan struct{} { return seen }
