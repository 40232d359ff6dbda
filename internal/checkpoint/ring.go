package checkpoint

import (
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
)

// slot is one place in the stream.
type slot struct {
	pending int // what must settle: changes, and one until the controller is done with it
	kind    Kind
	version resource.Version
}

// minRing is the least size of a ring.
const minRing = 64

// ring is the places from the first that is not settled to the last that was given out. Its memory
// follows their number.
type ring struct {
	buf         []slot // as many as a power of two; place n lies at buf[n mod len(buf)]
	first, next uint64 // places [first, next) are there
}

func newRing() ring { return ring{buf: make([]slot, minRing), first: 1, next: 1} }

func (r *ring) len() int { return int(r.next - r.first) }

// at is the place with a number.
func (r *ring) at(n uint64) *slot {
	if n < r.first || n >= r.next {
		panic(fmt.Sprintf("checkpoint: place %d is not among the open ones, %d to %d", n, r.first, r.next-1))
	}
	return &r.buf[n&uint64(len(r.buf)-1)]
}

// push adds a place and gives its number.
func (r *ring) push(s slot) uint64 {
	if r.len() == len(r.buf) {
		r.resize(2 * len(r.buf))
	}
	r.next++
	*r.at(r.next - 1) = s
	return r.next - 1
}

// pop drops the first place.
func (r *ring) pop() {
	*r.at(r.first) = slot{}
	r.first++
	if n := len(r.buf); n > minRing && r.len() < n/8 {
		r.resize(n / 2)
	}
}

func (r *ring) resize(size int) {
	buf := make([]slot, size)
	for n := r.first; n < r.next; n++ {
		buf[n&uint64(size-1)] = *r.at(n)
	}
	r.buf = buf
}
