package bridge

import (
	"context"
	"time"
)

// progressInterval is how often an unfinished start is told.
const progressInterval = 10 * time.Second

// progress logs how far the first lists are, and when they have ended; a cluster of many objects
// takes minutes.
func (b *Bridge) progress(ctx context.Context) error {
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	told := began
	for {
		synced, resources, listed := b.populated()
		if synced == resources {
			b.log.Info("all resources are in sync with the API server", "resources", synced, "objects",
				listed,
				"took", time.Since(began).Round(time.Millisecond).String())
			if b.cfg.OnSynced != nil {
				b.cfg.OnSynced()
			}
			return nil
		}
		if time.Since(told) >= progressInterval {
			told = time.Now()
			b.log.Info("syncing with the API server", "resources", resources, "in_sync", synced, "objects",
				listed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// populated returns how many pipelines are in sync, of how many, and how many objects were listed.
func (b *Bridge) populated() (synced, resources, listed int) {
	units := b.roster.all()
	for _, u := range units {
		s := u.Status()
		listed += s.Listed
		if s.Synced {
			synced++
		}
	}
	return synced, len(units), listed
}
