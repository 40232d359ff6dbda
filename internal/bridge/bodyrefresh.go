package bridge

import (
	"context"
	"time"
)

// quietFor is how long no update may have left a stale body on disk before bodies are refreshed.
const quietFor = 10 * time.Second

// refreshBodies refreshes the stale bodies of all pipelines whenever there is no flood of updates,
// until ctx ends.
func (b *Bridge) refreshBodies(ctx context.Context) error {
	tick := time.NewTicker(quietFor / 2)
	defer tick.Stop()
	left, since := b.cfg.DB.BodiesLeft(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := b.cfg.DB.BodiesLeft(); now != left {
			left, since = now, time.Now()
		}
		if time.Since(since) < quietFor || b.stateErr() != nil {
			continue
		}
		for _, u := range b.roster.all() {
			u.RefreshBodies(func() bool { return b.cfg.DB.BodiesLeft() == left })
		}
	}
}
