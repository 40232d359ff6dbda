package standby

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// elector acquires, renews and releases the lease. It follows the rules of client-go's
// leaderelection, so that either can take part in one election:
//
//	candidate ──claim──> leader ──renew fails for RenewDeadline, or another has it──> lost
//	                        └──ctx ends──> released, if that is allowed
//
// Two things keep two replicas from leading at once. The API server accepts a write only of the
// version that was read last. And who finds a holder waits for the holder's whole duration, from
// when this machine has first seen the record: times in the record are never compared, since they
// are of another machine's clock.
//
// It is owned by the goroutine of Lease.Run.
type elector struct {
	lease *Lease
	delay campaignDelay
	// last is the object as it was last read or written; nil for never. It stays when somebody
	// deletes the object: its holder may still publish.
	last   *coordinationv1.Lease
	exists bool      // false when the object was missing
	seen   time.Time // when last's spec was seen for the first time
}

// run takes part until ctx ends or the lease is lost.
func (e *elector) run(ctx context.Context) {
	if !e.acquire(ctx) {
		return
	}
	close(e.lease.elected)
	e.hold(ctx)
	if e.lease.mayRelease() {
		e.release(context.WithoutCancel(ctx))
	}
}

// acquire returns true when this replica has the lease, false when ctx ended before. The times
// between attempts differ, so that candidates do not collide again and again.
func (e *elector) acquire(ctx context.Context) bool {
	period := e.lease.cfg.RetryPeriod
	for ctx.Err() == nil {
		if e.claim(ctx) {
			return true
		}
		_ = ratelimit.Sleep(ctx, period+rand.N(period*6/5+1))
	}
	return false
}

// claim takes the lease if nobody else has it.
func (e *elector) claim(ctx context.Context) bool {
	return e.read(ctx) && (e.isMine() || !e.isHeld() && e.delay.isOver()) && e.write(ctx) == nil
}

// hold renews the lease until ctx ends or the lease is lost.
func (e *elector) hold(ctx context.Context) {
	for ratelimit.Sleep(ctx, e.lease.cfg.RetryPeriod) == nil && e.renewInTime(ctx) {
	}
}

// renewInTime tries to renew until it succeeds. It gives up when RenewDeadline has passed, and at
// once when another replica has the lease, or had it.
func (e *elector) renewInTime(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, e.lease.cfg.RenewDeadline)
	defer cancel()
	retry := time.NewTicker(e.lease.cfg.RetryPeriod)
	defer retry.Stop()
	for ctx.Err() == nil {
		if e.renew(ctx) {
			return true
		}
		if !e.isMine() {
			return false
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
	}
	return false
}

// renew writes to the object as it was last seen: nobody else should have written to it. When that
// fails, it reads the object and tries again. Its own last write may have been accepted and the
// answer lost; a person may have edited or deleted the object.
func (e *elector) renew(ctx context.Context) bool {
	return e.write(ctx) == nil || e.read(ctx) && e.isMine() && e.write(ctx) == nil
}

// release gives the lease up, if this replica still has it.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.lease.cfg.RenewDeadline)
	defer cancel()
	for e.read(ctx) && e.exists && e.isMine() {
		now := metav1.NowMicro()
		err := e.put(ctx, coordinationv1.LeaseSpec{
			HolderIdentity: new(""), LeaseDurationSeconds: new(int32(1)),
			AcquireTime: &now, RenewTime: &now, LeaseTransitions: e.last.Spec.LeaseTransitions,
		})
		// a renewal that was still in flight when ctx ended may have come between
		if !apierrors.IsConflict(err) {
			return
		}
	}
}

// mayRelease reports whether the lease may be released, and not expire.
func (l *Lease) mayRelease() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.releasing
}

// read reads the object. It reports whether it is known now, or known to be missing.
func (e *elector) read(ctx context.Context) bool {
	cfg := &e.lease.cfg
	object, err := cfg.Client.Get(ctx, cfg.Namespace, cfg.Name)
	switch {
	case apierrors.IsNotFound(err):
		e.exists = false
		return true
	case err != nil:
		if ctx.Err() == nil {
			e.lease.log.Warn("can't read the lease, trying again", "err", err)
		}
		return false
	}
	if e.last == nil || !equality.Semantic.DeepEqual(e.last.Spec, object.Spec) {
		e.seen = time.Now()
		e.delay.reset() // the lease is not vacant, or was not
	}
	e.last, e.exists = object, true
	e.lease.recordLeader(holderOf(object))
	return true
}

func (l *Lease) recordLeader(holder string) {
	l.mu.Lock()
	before := l.leader
	l.leader = holder
	l.mu.Unlock()
	if before != holder && holder != "" && holder != l.cfg.Identity {
		l.log.Info("another replica leads", "leader", holder)
	}
}

// write makes the lease this replica's from now on.
func (e *elector) write(ctx context.Context) error {
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       &e.lease.cfg.Identity,
		LeaseDurationSeconds: new(int32(e.lease.cfg.Duration / time.Second)),
		AcquireTime:          &now, RenewTime: &now, LeaseTransitions: new(int32(0)),
	}
	if e.last != nil {
		before := &e.last.Spec
		transitions := orZero(before.LeaseTransitions)
		if e.isMine() {
			spec.AcquireTime = cmp.Or(before.AcquireTime, &now)
		} else {
			transitions++
		}
		spec.LeaseTransitions = &transitions
	}
	return e.put(ctx, spec)
}

// put writes the object, if nobody else has written it since it was read.
func (e *elector) put(ctx context.Context, spec coordinationv1.LeaseSpec) error {
	cfg := &e.lease.cfg
	object, put := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
	}, cfg.Client.Create
	if e.exists {
		object, put = e.last.DeepCopy(), cfg.Client.Update
	}
	object.Spec = spec
	began := time.Now()
	written, err := put(ctx, object)
	switch {
	case err == nil:
		e.last, e.exists = written, true
		e.lease.recordWrite(*spec.HolderIdentity, began)
	case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil:
		e.lease.log.Warn("can't write the lease, trying again", "err", err)
	}
	return err
}

// recordWrite records that the API server has accepted a record from this replica, in answer to a
// request that began at a time.
func (l *Lease) recordWrite(holder string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = holder
	if holder == l.cfg.Identity && !l.releasing {
		l.renewed = began
	}
}

// isMine reports whether the lease is this replica's, as far as it has seen.
func (e *elector) isMine() bool {
	return e.last != nil && holderOf(e.last) == e.lease.cfg.Identity
}

// isHeld reports whether the last holder may still publish: less than the duration that it has
// written has passed since its last renewal was seen.
func (e *elector) isHeld() bool {
	if e.last == nil || holderOf(e.last) == "" {
		return false
	}
	duration := time.Duration(orZero(e.last.Spec.LeaseDurationSeconds)) * time.Second
	if duration <= 0 { // not written by a replica
		duration = e.lease.cfg.Duration
	}
	return time.Since(e.seen) < duration
}

// holderOf returns the identity that has a lease, "" for none.
func holderOf(lease *coordinationv1.Lease) string { return orZero(lease.Spec.HolderIdentity) }

func orZero[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}

// deferDurations is for how many lease durations a replica that is not in sync leaves a vacant
// lease to others: one that is in sync may be restarting.
const deferDurations = 2

// campaignDelay is how long this replica has left a vacant lease to others. It is owned by the
// elector.
type campaignDelay struct {
	unsynced func() string // why others should lead, "" for no reason; nil for never
	limit    time.Duration
	log      *slog.Logger
	since    time.Time // zero: not at all
}

// reset begins again: somebody has written the lease since.
func (d *campaignDelay) reset() { d.since = time.Time{} }

// isOver reports whether this replica may take a lease that is vacant, and not others first.
func (d *campaignDelay) isOver() bool {
	if d.unsynced == nil {
		return true
	}
	why := d.unsynced()
	switch {
	case why == "":
		return true
	case d.since.IsZero():
		d.since = time.Now()
		d.log.Warn("nobody leads, and this replica is not in sync: it leaves the lease to others "+
			"for a while", "why", why, "for", d.limit.String())
	case time.Since(d.since) >= d.limit:
		d.log.Warn("nobody else has taken the lease: this replica takes it, though it is not "+
			"in sync", "why", why)
		return true
	}
	return false
}
