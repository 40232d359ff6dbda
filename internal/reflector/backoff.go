package reflector

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait before the next attempt. Zero values mean the default, which is
// client-go's.
type Backoff struct {
	Initial time.Duration // the first wait; default 800 ms
	Max     time.Duration // the longest, before jitter; default 30 s
	Factor  float64       // from one wait to the next; default 2
	// Jitter makes a wait longer by a random share of it, up to this one, so that many reflectors
	// do not all ask a server at once that comes back; default 1, negative for none.
	Jitter float64
}

func (b Backoff) withDefaults() Backoff {
	return Backoff{
		Initial: cmp.Or(b.Initial, 800*time.Millisecond),
		Max:     cmp.Or(b.Max, 30*time.Second),
		Factor:  cmp.Or(b.Factor, 2),
		Jitter:  max(cmp.Or(b.Jitter, 1), 0),
	}
}

// backoff counts failures. It starts over when nothing failed for resetAfter, and not at the first
// success: an object that can't be read makes every list succeed and every watch fail.
type backoff struct {
	Backoff
	// eager: the first failure of a row does not wait.
	eager bool
	next  time.Duration
	last  time.Time // when the last wait ended
}

const resetAfter = 2 * time.Minute

// delay returns how long to wait now.
func (b *backoff) delay() time.Duration {
	now := time.Now()
	if b.next == 0 || now.Sub(b.last) > resetAfter {
		b.next = b.Initial
		if b.eager {
			b.last = now
			return 0
		}
	}
	d := b.next + time.Duration(rand.Float64()*b.Jitter*float64(b.next))
	b.next = min(time.Duration(float64(b.next)*b.Factor), b.Max)
	b.last = now.Add(d)
	return d
}

// startOver forgets the failures so far.
func (b *backoff) startOver() { b.next = 0 }
