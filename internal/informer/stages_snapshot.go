package informer

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
)

// ErrNotSynced is returned by Snapshot before the first population: what is known is not
// everything.
var ErrNotSynced = errors.New("it is not in sync with the API server yet")

// SyncRequest says what is to be sent again.
type SyncRequest struct {
	// Round distinguishes one snapshot from another, and is in the ids of its events. Not 0.
	Round int64
	// Sink that gets it; "" for all.
	Sink string
	// Namespace of the objects; "" for all.
	Namespace string
	// Wants reports whether an object is meant; nil for all. object gives its state, which may be
	// nil.
	Wants func(object func() (*resource.Object, error)) (bool, error)
}

// Snapshot queues a Synced of every object that is meant, as it is known when its turn comes, in
// order with its changes. It gives their number, and that of those which are known in an earlier
// state only (store.IndexerConfig.ExactBodies): an earlier state must not come behind a later one.
// It reads no list, and waits while the FIFO is full. When the FIFO is closed, or ctx ends, it
// returns why.
func (i *Stages) Snapshot(ctx context.Context, s SyncRequest) (queued, stale int, err error) {
	if !i.HasSynced() {
		return 0, 0, ErrNotSynced
	}
	listeners := i.log.Set(nil)
	if s.Sink != "" {
		listeners = i.log.Set([]string{s.Sink})
	}
	for item, err := range i.cfg.Indexer.InNamespace(s.Namespace) {
		if err != nil {
			return queued, stale, fmt.Errorf("snapshot of %s: %w", i.cfg.Name, err)
		}
		if s.Wants != nil {
			wanted, err := s.Wants(item.Object)
			if err != nil {
				return queued, stale, fmt.Errorf("snapshot of %s: %s: %w", i.cfg.Name, item.Key, err)
			}
			if !wanted {
				continue
			}
		}
		if obj, err := item.Object(); err != nil {
			return queued, stale, fmt.Errorf("snapshot of %s: %s: %w", i.cfg.Name, item.Key, err)
		} else if obj != nil && item.Version.Newer(obj.Version) {
			stale++
			continue
		}
		if err := i.cfg.FIFO.Snapshot(ctx, item.Key, uint64(listeners), s.Round); err != nil {
			return queued, stale, err
		}
		queued++
	}
	return queued, stale, nil
}
