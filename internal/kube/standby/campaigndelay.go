package standby

import (
	"log/slog"
	"time"
)

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
