package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

// SendSnapshot has the pipelines of an informer send the objects that they know again, as synced
// and initial, each in order with its changes. Watches continue, and nothing is listed but the
// objects of stale bodies. It returns the pipelines' names when they have begun; the log says when
// they have ended. A snapshot that a stop or a change of the configuration breaks off is not
// continued. ErrStandby: another replica leads.
func (b *Bridge) SendSnapshot(
	ctx context.Context, req informer.SnapshotRequest,
) (names []string, err error) {
	// No other round is the same: those of resyncs are far smaller, and two requests do not come in
	// one millisecond.
	round := time.Now().UnixMilli()
	err = b.do(ctx, func(_ context.Context, r *reconciler) error {
		if err := r.b.replica.sends(); err != nil {
			return err
		}
		list, err := b.selectedBy(&req)
		if err != nil {
			return err
		}
		for _, u := range list {
			if !u.Snapshots.Start(&req, round) {
				return fmt.Errorf("informer %s: %w", u.Name(), ErrStopping)
			}
			names = append(names, u.Name())
		}
		return nil
	})
	return names, err
}

// selectedBy returns the pipelines that a request is about. All must be able to do it, or none
// does.
func (b *Bridge) selectedBy(req *informer.SnapshotRequest) (list []*informer.Informer, err error) {
	all := b.of(req.Informer)
	if len(all) == 0 {
		return nil, fmt.Errorf("informer %s: %w", req.Informer, ErrUnknown)
	}
	for _, u := range all {
		if !req.Selects(u.Config()) {
			continue
		}
		if err := u.Snapshots.Check(req); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("informer %s has no such resource in such a namespace: %w", req.Informer,
			ErrUnknown)
	}
	return list, nil
}
