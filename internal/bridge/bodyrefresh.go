package bridge

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

// quietFor is how long no update may have left a stale body on disk before bodies are refreshed.
const quietFor = 10 * time.Second

// bodyRefresh refreshes the stale bodies of all pipelines whenever there is no flood of updates.
type bodyRefresh struct {
	left      func() int64 // how many bodies updates have left stale; it only grows
	pipelines func() []*informer.Informer
	stateErr  func() error // nothing is refreshed while the state can't be written
}

// run works until ctx ends.
func (b *bodyRefresh) run(ctx context.Context) error {
	tick := time.NewTicker(quietFor / 2)
	defer tick.Stop()
	left, since := b.left(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := b.left(); now != left {
			left, since = now, time.Now()
		}
		if time.Since(since) < quietFor || b.stateErr() != nil {
			continue
		}
		for _, u := range b.pipelines() {
			u.RefreshBodies(func() bool { return b.left() == left })
		}
	}
}
