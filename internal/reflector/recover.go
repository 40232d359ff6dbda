package reflector

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
)

// stuck counts how often a watch from one version brought nothing.
type stuck struct {
	times  int
	closed bool // it was closed at once each time, which is how an expired version of Events looks like
}

// maxStuck is how often a watch from one version may bring nothing before a gap is suspected: an empty close tells of an
// expired version, an error of an event that the server can't read.
const maxStuck = 5

// recoverFrom decides what to do about a failed step and how long to wait before.
func (r *Reflector) recoverFrom(err error, started time.Time) time.Duration {
	reason := reasonOf(err)
	r.metrics.errors.WithLabelValues(reason).Inc()
	watching := r.relist == nil && !r.probing
	switch reason {
	case reasonExpired:
		return r.recoverExpired(watching)
	case reasonTooLarge:
		r.probing, r.consistent = true, true // the server lags, or it went back: the probe will tell
	case reasonUnreadable, reasonStoreRead:
		r.recoverUnreadable(watching)
	case reasonClosed, reasonServer:
		if watching && errors.Is(err, errBroke) {
			r.recoverStuck(reason)
		}
	case reasonConnection, reasonSilent:
		if watching && r.hadWorked(err, started) {
			r.probing = true
			return 0 // go on at once
		}
	}
	// Whatever it was, a server that was restored from a backup may answer the next request. It would take a watch from a version
	// that it has not reached, and be silent, and give a list that is older than what is known: it has to be asked.
	r.probing = true
	delay := r.backoff.delay()
	if wait := retryAfter(err); wait > delay {
		// A little later than asked, so that not everybody comes back at the same moment.
		delay = wait + time.Duration(rand.Float64()*float64(r.cfg.Backoff.Initial))
	}
	return delay
}

// recoverExpired gives how long to wait.
func (r *Reflector) recoverExpired(watching bool) time.Duration {
	switch {
	case !watching:
		r.listExpired()
		r.probing = true // it may ask for a list of any version now
	case r.skipBack():
		return 0 // there is a later version to try, once
	default:
		r.probing, r.suspect = true, resource.ReasonExpired
		r.stuck = stuck{}
	}
	return r.expiries.delay()
}

// hadWorked says whether a watch that broke had been open for a while. If it was, or has brought something, then the failures before it
// are over: a connection that is cut now and then must not be waited for ever longer.
func (r *Reflector) hadWorked(err error, started time.Time) bool {
	broken, ok := errors.AsType[*brokenError](err)
	long := ok && time.Since(started) > shortWatch
	if long || ok && broken.progress {
		r.backoff.startOver()
	}
	return long
}

func (r *Reflector) recoverUnreadable(watching bool) {
	if watching {
		r.probing, r.suspect = true, resource.ReasonUnreadable
	}
}

func (r *Reflector) recoverStuck(reason string) {
	r.stuck.closed = reason == reasonClosed
	if r.stuck.times++; r.stuck.times < maxStuck {
		return
	}
	r.probing, r.suspect = true, resource.ReasonUnreadable
	if r.stuck.closed {
		r.suspect = resource.ReasonExpired
	}
}

// pause waits, visibly.
func (r *Reflector) pause(ctx context.Context, delay time.Duration, err error) {
	err = explain(err)
	r.status.set(func(s *Status) { s.LastError, s.NotFound = err.Error(), reasonOf(err) == reasonNotFound })
	if delay == 0 {
		r.log.Info("request ended early, trying again at once", "resource_version", r.version, "err", err)
		return
	}
	r.log.Warn("request failed, trying again", "resource_version", r.version, "delay", delay.Round(time.Millisecond), "err", err)
	r.status.phase(BackingOff)
	_ = ratelimit.Sleep(ctx, delay)
}
