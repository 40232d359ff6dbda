package standby

import (
	"bytes"
	"errors"
	"time"
)

// patience is for how many lease durations a replica that is unfit leaves a vacant lease to others: one that is fit may be starting again.
const patience = 2

// errGivesWay keeps the elector from taking a lease that others should have.
var errGivesWay = errors.New("a vacant lease is left to replicas that know more")

// vacancy is how long this replica has left a vacant lease to others.
type vacancy struct {
	since time.Time // zero for not at all
	seen  []byte    // the record as it was last read
}

// looks notes the record as it is now. When somebody has written it the lease is, or was, not vacant.
func (v *vacancy) looks(record []byte) {
	if !bytes.Equal(v.seen, record) {
		v.since, v.seen = time.Time{}, record
	}
}

// giveWay gives an error while others should take the lease, which is vacant, or this replica's.
func (l *Lease) giveWay() error {
	select {
	case <-l.elected:
		return nil
	default:
	}
	if l.unfit == nil || l.Gate() == nil {
		return nil
	}
	why := l.unfit()
	v := &l.waiting
	switch waits := patience * l.cfg.Duration; {
	case why == "":
		return nil
	case v.since.IsZero():
		v.since = time.Now()
		l.log.Warn("nobody leads, and this replica is left behind: it leaves the lease to others for a while", "why", why, "for", waits.String())
	case time.Since(v.since) >= waits:
		l.log.Warn("nobody else has taken the lease: this replica takes it, though it is left behind", "why", why)
		return nil
	}
	return errGivesWay
}
