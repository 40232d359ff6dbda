package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
)

var (
	// ErrBusy is returned by Check while the one before is still being sent.
	ErrBusy = errors.New("a snapshot is being sent already")
	// ErrUnknown is returned for an informer or a sink that there is not.
	ErrUnknown = errors.New("there is none of this name")
)

// SnapshotRequest says what is to be sent again. Zero values mean all.
type SnapshotRequest struct {
	Informer string
	// Resource as resource.Type prints it: "pods", "deployments.apps".
	Resource  string
	Namespace string
	Selector  labels.Selector // nil for all
	Sink      string
}

// Selects reports whether a request is about this pipeline.
func (r *SnapshotRequest) Selects(c *Config) bool {
	return (r.Resource == "" || c.Type.String() == r.Resource || c.Type.Resource == r.Resource) &&
		(r.Namespace == "" || c.Type.Namespaced && (c.Namespace == "" || c.Namespace == r.Namespace))
}

// Snapshots sends all objects of a pipeline again, or some of them, on request.
type Snapshots struct {
	informer *Informer
	busy     atomic.Bool // one that was started is being sent
}

// Check returns why the pipeline can't send a snapshot now.
func (s *Snapshots) Check(req *SnapshotRequest) error {
	p := s.informer
	switch {
	case p.Draining() != NotDraining:
		return fmt.Errorf("informer %s: it is being stopped", p.name)
	case !p.stages.HasSynced():
		return fmt.Errorf("informer %s: %w", p.name, ErrNotSynced)
	case s.busy.Load():
		return fmt.Errorf("informer %s: %w", p.name, ErrBusy)
	case req.Sink != "" && !p.cfg.sendsTo(req.Sink):
		return fmt.Errorf("informer %s sends nothing to a sink %s: %w", p.name, req.Sink, ErrUnknown)
	}
	return nil
}

// Start sends a snapshot beside everything else. It reports whether the pipeline still reads. round
// is another for each request.
func (s *Snapshots) Start(req *SnapshotRequest, round int64) bool {
	s.busy.Store(true)
	started := s.informer.Go(func(ctx context.Context) {
		defer s.busy.Store(false)
		s.Send(ctx, req, round)
	})
	if !started {
		s.busy.Store(false)
	}
	return started
}

// Send sends a snapshot; the log says what became of it.
func (s *Snapshots) Send(ctx context.Context, req *SnapshotRequest, round int64) {
	p := s.informer
	log := p.log.With("resource", p.cfg.Type.String(), "round", round)
	log.Info("sending a snapshot that was asked for")
	incomplete := p.refreshNow(ctx)
	n, stale, err := p.stages.Snapshot(ctx,
		SyncRequest{
			Round: round, Sink: req.Sink, Namespace: req.Namespace, Wants: req.wants(),
		})
	switch {
	case err == nil && incomplete != nil && stale > 0:
		log.Warn("the snapshot that was asked for is in flight, without objects of which a flood of "+
			"updates left an earlier state "+
			"on disk (state.bodiesPerSecond), and which could not be read from the API server: "+
			"they come with their next change, or with another snapshot",
			"objects", n, "left_out", stale, "err", incomplete)
	case err == nil && stale > 0:
		log.Info("the snapshot that was asked for is in flight; what changed while it began "+
			"comes as that change",
			"objects", n, "changed", stale)
	case err == nil:
		log.Info("the snapshot that was asked for is in flight", "objects", n)
	case ctx.Err() != nil, errors.Is(err, deltafifo.ErrClosed):
		log.Warn("the snapshot that was asked for was broken off, since its informer ends", "objects", n)
	default:
		log.Error("the snapshot that was asked for failed", "objects", n, "err", err)
	}
}

// wants reports which objects of the namespace are asked for; nil for all.
func (r *SnapshotRequest) wants() func(func() (*resource.Object, error)) (bool, error) {
	if r.Selector == nil {
		return nil
	}
	return func(object func() (*resource.Object, error)) (bool, error) {
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
	listeners := i.log.ListenersOf(nil)
	if s.Sink != "" {
		listeners = i.log.ListenersOf([]string{s.Sink})
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
