package resource

// LargeBytes is the size from which on an object is large: work on it takes a millisecond. An object of
// half a megabyte is read, decided, compared and compressed for ten milliseconds and more. Where as
// many large ones are worked on as there are processors, everything else waits for that: small
// objects of others too. Waits for a processor show it late, and only by chance, since the runtime
// notes one of eight.
const LargeBytes = 64 << 10

var largeSeen = make(chan struct{}, 1)

// NoteLarge says that an object of a size has come. It never blocks, and may be called concurrently.
func NoteLarge(bytes int) {
	if bytes < LargeBytes {
		return
	}
	select {
	case largeSeen <- struct{}{}:
	default:
	}
}

// LargeSeen has an element once a large object came since the last one was received.
func LargeSeen() <-chan struct{} { return largeSeen }
