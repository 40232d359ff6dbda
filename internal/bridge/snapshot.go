package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
)

// ErrBusy is returned by Snapshot while the one before is still being sent.
var ErrBusy = errors.New("a snapshot is being sent already")

// ErrStandby is returned for what only the leader can do.
var ErrStandby = errors.New("this replica stands by, and sends nothing")

// SnapshotRequest says what is to be sent again. Zero values mean all.
type SnapshotRequest struct {
	Informer string
	// Resource as resource.Type prints it: "pods", "deployments.apps".
	Resource  string
	Namespace string
	Selector  labels.Selector // nil for all
	Sink      string
}

// SendSnapshot has the units of an informer send the objects that they know again, as synced and initial, each in order with its changes; watches
// go on, and nothing is listed but what a flood of updates has left behind on disk. It returns the units' names when they have begun; the log tells when they are through. One that is broken off by
// a stop or a change of the configuration is not continued. ErrStandby: another replica leads.
func (b *Bridge) SendSnapshot(ctx context.Context, req SnapshotRequest) (units []string, err error) {
	round := time.Now().UnixMilli() // no other round is: those of resyncs are far smaller, and two requests do not come in one millisecond
	err = b.do(ctx, func(_ context.Context, f *follower) error {
		if err := f.replica.sends(); err != nil {
			return err
		}
		list, err := f.meant(&req)
		if err != nil {
			return err
		}
		for _, u := range list {
			if !u.startSnapshot(&req, round) {
				return fmt.Errorf("informer %s: %w", u.name, ErrStopping)
			}
			units = append(units, u.name)
		}
		return nil
	})
	return units, err
}

// meant are the units that a request is about. All must be able to do it, or none does.
func (b *Bridge) meant(req *SnapshotRequest) (list []*unit, err error) {
	all := b.of(req.Informer)
	if len(all) == 0 {
		return nil, fmt.Errorf("informer %s: %w", req.Informer, ErrUnknown)
	}
	for _, u := range all {
		switch {
		case req.Resource != "" && u.cfg.Type.String() != req.Resource && u.cfg.Type.Resource != req.Resource,
			req.Namespace != "" && (!u.cfg.Type.Namespaced || u.cfg.Namespace != "" && u.cfg.Namespace != req.Namespace):
			continue
		case u.leaving() != staying:
			return nil, fmt.Errorf("informer %s: it is being stopped", u.name)
		case !u.informer.HasSynced():
			return nil, fmt.Errorf("informer %s: %w", u.name, informer.ErrNotSynced)
		case u.isBusy():
			return nil, fmt.Errorf("informer %s: %w", u.name, ErrBusy)
		case req.Sink != "" && !u.sendsTo(req.Sink):
			return nil, fmt.Errorf("informer %s sends nothing to a sink %s: %w", u.name, req.Sink, ErrUnknown)
		}
		list = append(list, u)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("informer %s has no such resource in such a namespace: %w", req.Informer, ErrUnknown)
	}
	return list, nil
}

func (u *unit) sendsTo(sink string) bool {
	for _, b := range u.cfg.Sinks {
		if b.Sink == sink {
			return true
		}
	}
	return false
}

func (u *unit) isBusy() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.busy
}

func (u *unit) setBusy(busy bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = busy
}

// startSnapshot sends a snapshot beside everything else.
func (u *unit) startSnapshot(req *SnapshotRequest, round int64) bool {
	u.setBusy(true)
	started := u.startJob(func(ctx context.Context) {
		defer u.setBusy(false)
		u.sendSnapshot(ctx, req, round)
	})
	if !started {
		u.setBusy(false)
	}
	return started
}

// sendSnapshot sends a snapshot, and tells in the log what became of it.
func (u *unit) sendSnapshot(ctx context.Context, req *SnapshotRequest, round int64) {
	log := u.log.With("resource", u.cfg.Type.String(), "round", round)
	log.Info("sending a snapshot that was asked for")
	incomplete := u.complete(ctx)
	n, stale, err := u.informer.Snapshot(ctx, informer.Snapshot{Round: round, Sink: req.Sink, Wants: req.wants()})
	switch {
	case err == nil && incomplete != nil && stale > 0:
		log.Warn("the snapshot that was asked for is on its way, without objects of which a flood of updates left an earlier state on disk (state.bodiesPerSecond), and which could not be read from the API server: they come with their next change, or with another snapshot",
			"objects", n, "left_out", stale, "err", incomplete)
	case err == nil && stale > 0:
		log.Info("the snapshot that was asked for is on its way; what changed while it began comes as that change", "objects", n, "changed", stale)
	case err == nil:
		log.Info("the snapshot that was asked for is on its way", "objects", n)
	case ctx.Err() != nil, errors.Is(err, deltafifo.ErrClosed):
		log.Warn("the snapshot that was asked for was broken off, since its informer ends", "objects", n)
	default:
		log.Error("the snapshot that was asked for failed", "objects", n, "err", err)
	}
}

// wants says which objects are meant; nil for all.
func (r *SnapshotRequest) wants() func(resource.Key, func() (*resource.Object, error)) (bool, error) {
	if r.Namespace == "" && r.Selector == nil {
		return nil
	}
	return func(key resource.Key, object func() (*resource.Object, error)) (bool, error) {
		if namespace, _ := key.Split(); r.Namespace != "" && namespace != r.Namespace {
			return false, nil
		}
		if r.Selector == nil {
			return true, nil
		}
		obj, err := object()
		if err != nil || obj == nil {
			return false, err
		}
		var meta struct {
			Metadata struct {
				Labels labels.Set `json:"labels"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(obj.Raw, &meta); err != nil {
			return false, err
		}
		return r.Selector.Matches(meta.Metadata.Labels), nil
	}
}
