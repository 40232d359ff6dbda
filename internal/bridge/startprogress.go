package bridge

import (
	"context"
	"log/slog"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

// progressInterval is how often an unfinished start is logged.
const progressInterval = 10 * time.Second

// startProgress logs how far the first lists are, and when they have ended; a cluster of many
// objects takes minutes.
type startProgress struct {
	pipelines func() []*informer.Informer
	onSynced  func() // called once, when all are in sync; may be nil
	log       *slog.Logger
}

// run returns when all pipelines are in sync, or ctx ends.
func (p *startProgress) run(ctx context.Context) error {
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	logged := began
	for {
		synced, resources, listed := p.populated()
		if synced == resources {
			p.log.Info("all resources are in sync with the API server", "resources", synced,
				"objects", listed, "took", time.Since(began).Round(time.Millisecond).String())
			if p.onSynced != nil {
				p.onSynced()
			}
			return nil
		}
		if time.Since(logged) >= progressInterval {
			logged = time.Now()
			p.log.Info("syncing with the API server", "resources", resources, "in_sync", synced,
				"objects", listed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// populated returns how many pipelines are in sync, of how many, and how many objects were listed.
func (p *startProgress) populated() (synced, resources, listed int) {
	units := p.pipelines()
	for _, u := range units {
		s := u.Status()
		listed += s.Listed
		if s.Synced {
			synced++
		}
	}
	return synced, len(units), listed
}
