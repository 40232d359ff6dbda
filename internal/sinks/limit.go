package sinks

import (
	"sync/atomic"
	"time"
)

// SizeLimit is the largest message that a destination takes: as the broker's settings say, or as a
// refusal has shown. An administrator may change it at any time. So a sink looks it up again when
// the broker refuses a message that fits, and from time to time while messages do not fit. The
// methods may be called concurrently, and on nil: then no limit is known.
type SizeLimit struct {
	most     atomic.Int64 // 0: none is known
	exceeded atomic.Bool  // something did not fit since the limit was last raised
	// inferred is when a refusal has set the limit, in Unix nanoseconds; 0 when it was read.
	inferred atomic.Int64
}

// inferredFor is how long a limit holds that only a refusal has shown. The next refusal shows it
// again, and costs a request and no event.
const inferredFor = 5 * time.Second

// NewSizeLimit returns a limit in bytes; 0 for none that is known.
func NewSizeLimit(most int) *SizeLimit {
	l := new(SizeLimit)
	l.most.Store(int64(most))
	return l
}

// Load returns the limit in bytes, 0 when none is known.
func (l *SizeLimit) Load() int {
	if l == nil {
		return 0
	}
	return int(l.most.Load())
}

// Exceed records that a message does not fit.
func (l *SizeLimit) Exceed() {
	if l != nil && !l.exceeded.Load() {
		l.exceeded.Store(true)
	}
}

// Refuse is called when the broker has refused a message of a size that fits. It looks the limit
// up again. Where that fails, or the limit is above the size, the size shows the limit. Refuse
// reports whether the limit is lower now, so that the caller can try a smaller form.
func (l *SizeLimit) Refuse(size int, look func() (int, error)) bool {
	if l == nil {
		return false
	}
	if before := l.Load(); before > 0 && size > before {
		return false
	}
	if most, err := look(); err == nil && most > 0 && most < size {
		l.most.Store(int64(most))
		l.inferred.Store(0)
	} else {
		l.most.Store(int64(size - 1))
		l.inferred.Store(time.Now().UnixNano())
	}
	l.exceeded.Store(true)
	return true
}

// Refresh looks the limit up again if messages have exceeded it, and reports whether it is higher
// now. A limit that only a refusal has shown is dropped after inferredFor.
func (l *SizeLimit) Refresh(look func() (int, error)) (raised bool) {
	if !l.exceeded.Load() {
		return false
	}
	most, err := look()
	since := l.inferred.Load()
	if since == 0 && err != nil || since != 0 && time.Since(time.Unix(0, since)) < inferredFor {
		return false
	}
	before := l.Load()
	l.most.Store(int64(most))
	l.inferred.Store(0)
	if most == 0 || most > before {
		l.exceeded.Store(false)
		return true
	}
	return false
}
