package reflector

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

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
		r.recoverExpired(watching)
	case reasonTooLarge:
		r.probing, r.consistent = true, true // the server lags, or it went back: the probe will tell
	case reasonUnreadable, reasonStoreRead:
		r.recoverUnreadable(watching)
	case reasonClosed, reasonServer:
		if watching && errors.Is(err, errBroke) {
			r.recoverStuck(reason)
		} else {
			r.probing = r.probing || watching // not the API server may have answered, but what stands before it
		}
	case reasonConnection, reasonSilent:
		// A server that was restored from a backup comes back with another history: it has to be asked.
		r.probing = r.probing || watching
		if watching && errors.Is(err, errBroke) && time.Since(started) > shortWatch {
			return 0 // it had worked until now: go on at once
		}
	}
	delay := r.backoff.delay()
	if wait := retryAfter(err); wait > delay {
		// A little later than asked, so that not everybody comes back at the same moment.
		delay = wait + time.Duration(rand.Float64()*float64(r.cfg.Backoff.Initial))
	}
	return delay
}

func (r *Reflector) recoverExpired(watching bool) {
	switch {
	case !watching:
		r.listExpired()
	case !r.skipBack():
		r.probing, r.suspect = true, resource.ReasonExpired
		r.stuck = stuck{}
	}
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
	r.status.set(func(s *Status) { s.LastError = err.Error() })
	if delay == 0 {
		r.log.Info("watch broke, opening it again", "resource_version", r.version, "err", err)
		return
	}
	r.log.Warn("request failed, trying again", "resource_version", r.version, "delay", delay.Round(time.Millisecond), "err", err)
	r.status.phase(BackingOff)
	wait := time.NewTimer(delay)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}
