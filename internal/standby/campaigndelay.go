package standby

import (
	"bytes"
	"errors"
	"time"
)

// deferDurations is for how many lease durations a replica that is not in sync leaves a vacant
// lease to others: one that is in sync may be restarting.
const deferDurations = 2

// errDeferred keeps the elector from taking a lease that others should take.
var errDeferred = errors.New("a vacant lease is left to replicas that are in sync")

// campaignDelay is how long this replica has left a vacant lease to others.
type campaignDelay struct {
	since time.Time // zero: not at all
	seen  []byte    // the record as it was last read
}

// observe compares the record with the last one. When somebody has written it, the lease is not
// vacant, or was not.
func (v *campaignDelay) observe(record []byte) {
	if !bytes.Equal(v.seen, record) {
		v.since, v.seen = time.Time{}, record
	}
}

// deferVacant returns an error while others should take the lease, which is vacant, or this
// replica's.
func (l *Lease) deferVacant() error {
	select {
	case <-l.elected:
		return nil
	default:
	}
	if l.unsynced == nil || l.Gate() == nil {
		return nil
	}
	why := l.unsynced()
	v := &l.delay
	switch waits := deferDurations * l.cfg.Duration; {
	case why == "":
		return nil
	case v.since.IsZero():
		v.since = time.Now()
		l.log.Warn("nobody leads, and this replica is not in sync: it leaves the lease to others "+
			"for a while", "why", why, "for", waits.String())
	case time.Since(v.since) >= waits:
		l.log.Warn("nobody else has taken the lease: this replica takes it, though it is not "+
			"in sync", "why", why)
		return nil
	}
	return errDeferred
}
