package bridge

import (
	"context"
	"errors"

	"github.com/kubebridge/bridge/internal/informer"
)

// refill sends all objects again to a sink that keeps their newest state, when its destination has
// lost some. The publisher's goroutine that inspects the sink owns it.
type refill struct {
	bridge *Bridge
	sink   string
	begun  map[string]bool // informers whose snapshot is in flight
}

func newRefill(b *Bridge, sink string) *refill { return &refill{bridge: b, sink: sink} }

// send is publisher.Config.OnLoss. It returns an error while an informer can't send a snapshot yet,
// and does not repeat those of the others.
func (r *refill) send(ctx context.Context, isRetry bool) error {
	if !isRetry {
		r.begun = map[string]bool{}
	}
	var failed error
	for _, u := range r.bridge.informers.all() {
		name := u.Config().Informer
		if r.begun[name] {
			continue
		}
		_, err := r.bridge.SendSnapshot(ctx, informer.SnapshotRequest{Informer: name, Sink: r.sink})
		if err == nil {
			r.bridge.log.Info("all objects are sent again, since the sink's destination has lost some",
				"informer", name, "sink", r.sink)
		}
		if err == nil || errors.Is(err, informer.ErrUnknown) { // it does not feed the sink
			r.begun[name] = true
			continue
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
