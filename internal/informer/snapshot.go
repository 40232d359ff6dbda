package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

var (
	// ErrBusy is returned by Check while an earlier snapshot is still being sent.
	ErrBusy = errors.New("a snapshot is being sent already")
	// ErrUnknown is returned for the name of an informer or a sink that does not exist.
	ErrUnknown = errors.New("there is none of this name")
	// ErrNotSynced is returned before the first population: the known objects are not all.
	ErrNotSynced = errors.New("it is not in sync with the API server yet")
)

// SnapshotRequest selects the objects that are to be sent again. Zero values mean all.
type SnapshotRequest struct {
	Informer string
	// Resource as resource.Type prints it: "pods", "deployments.apps".
	Resource  string
	Namespace string
	Selector  labels.Selector // nil for all
	Sink      string
	// Round is that of its events; 0 for a new one.
	Round int64
	// Index is the name of an index: only objects that have one of Values in it are sent, and no
	// others are read.
	Index  string
	Values []string
}

// Selects reports whether a request is about this unit.
func (r *SnapshotRequest) Selects(c *Config) bool {
	return (r.Resource == "" || c.Type.String() == r.Resource || c.Type.Resource == r.Resource) &&
		(r.Namespace == "" || c.Type.Namespaced && (c.Namespace == "" || c.Namespace == r.Namespace))
}

// Snapshots sends all objects of an informer again, or some of them, on request.
type Snapshots struct {
	informer *Informer
	busy     atomic.Bool // one that was started is being sent
}

// Check returns why the informer can't send a snapshot now.
func (s *Snapshots) Check(req *SnapshotRequest) error {
	i := s.informer
	switch {
	case i.Draining() != NotDraining:
		return fmt.Errorf("informer %s: it is being stopped", i.name)
	case !i.stages.HasSynced():
		return fmt.Errorf("informer %s: %w", i.name, ErrNotSynced)
	case s.busy.Load():
		return fmt.Errorf("informer %s: %w", i.name, ErrBusy)
	case req.Sink != "" && !i.cfg.sendsTo(req.Sink):
		return fmt.Errorf("informer %s sends nothing to a sink %s: %w", i.name, req.Sink, ErrUnknown)
	}
	if req.Index != "" {
		if err := i.indexer.Indexes().Check(req.Index); err != nil {
			return fmt.Errorf("informer %s: index %s: %w", i.name, req.Index, err)
		}
	}
	return nil
}

// index has the objects read by an index of a label, where the selector names one that is complete.
func (s *Snapshots) index(req *SnapshotRequest) (index string, values []string) {
	if req.Index != "" || req.Selector == nil {
		return req.Index, req.Values
	}
	requirements, _ := req.Selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			index := store.LabelIndex(r.Key())
			if s.informer.indexer.Indexes().Check(index) == nil {
				return index, r.ValuesUnsorted()
			}
		default: // the values that it wants are not known
		}
	}
	return "", nil
}

// Start sends a snapshot beside everything else. It reports whether the informer still reads. round
// is different for each request.
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

// Send sends a snapshot, and logs the result.
func (s *Snapshots) Send(ctx context.Context, req *SnapshotRequest, round int64) {
	i := s.informer
	log := i.log.With("resource", i.cfg.Type.String(), "round", round)
	log.Info("sending a snapshot that was asked for")
	incomplete := i.refreshNow(ctx)
	index, values := s.index(req)
	n, stale, err := i.stages.Snapshot(ctx,
		SyncRequest{
			Round: round, Sink: req.Sink, Namespace: req.Namespace, Index: index, Values: values,
			Wants: req.wants(),
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

// wants returns a function that reports which objects of the namespace are requested; nil for all.
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

// ReportLoss reports a gap to a sink, beside everything else: its destination has lost events. It
// returns false while the informer does not read. An informer that ends meanwhile reports none.
func (s *Snapshots) ReportLoss(sink string, round int64) bool {
	i := s.informer
	return !i.cfg.sendsTo(sink) || i.Go(func(ctx context.Context) {
		listeners := uint64(i.stages.Log().ListenersOf([]string{sink}))
		if err := i.stages.cfg.FIFO.Lose(ctx, listeners, round); err != nil {
			i.log.Warn("the gap of what the sink's destination has lost is not reported, since its "+
				"informer ends", "resource", i.cfg.Type.String(), "sink", sink, "err", err)
		}
	})
}

// SyncRequest selects the objects of Stages.Snapshot.
type SyncRequest struct {
	// Round distinguishes one snapshot from another, and is in the ids of its events. Not 0.
	Round int64
	// Sink that gets it; "" for all.
	Sink string
	// Namespace of the objects; "" for all.
	Namespace string
	// Index and Values are as in SnapshotRequest.
	Index  string
	Values []string
	// Wants reports whether an object is selected; nil for all. object returns its state, which may
	// be nil.
	Wants func(object func() (*resource.Object, error)) (bool, error)
}

// Snapshot queues a Synced of every selected object, in order with its changes: the event has the
// state that is known when its turn comes. It returns the number of objects, and the number of
// stale ones, of which only an earlier state is known (store.IndexerConfig.ExactBodies): an earlier
// state must not come behind a later one. It reads no list, and waits while the FIFO is full. When
// the FIFO is closed, or ctx ends, it returns the reason.
func (s *Stages) Snapshot(ctx context.Context, req SyncRequest) (queued, stale int, err error) {
	if !s.HasSynced() {
		return 0, 0, ErrNotSynced
	}
	listeners := s.log.ListenersOf(nil)
	if req.Sink != "" {
		listeners = s.log.ListenersOf([]string{req.Sink})
	}
	for item, err := range s.selected(&req) {
		if err != nil {
			return queued, stale, fmt.Errorf("snapshot of %s: %w", s.cfg.Name, err)
		}
		if req.Wants != nil {
			wanted, err := req.Wants(item.Object)
			if err != nil {
				return queued, stale, fmt.Errorf("snapshot of %s: %s: %w", s.cfg.Name, item.Key, err)
			}
			if !wanted {
				continue
			}
		}
		if obj, err := item.Object(); err != nil {
			return queued, stale, fmt.Errorf("snapshot of %s: %s: %w", s.cfg.Name, item.Key, err)
		} else if obj != nil && item.Version.Newer(obj.Version) {
			stale++
			continue
		}
		if err := s.cfg.FIFO.Snapshot(ctx, item.Key, uint64(listeners), req.Round); err != nil {
			return queued, stale, err
		}
		queued++
	}
	return queued, stale, nil
}

// selected yields the objects that may be wanted.
func (s *Stages) selected(req *SyncRequest) iter.Seq2[store.Item, error] {
	if req.Index == "" {
		return s.cfg.Indexer.InNamespace(req.Namespace)
	}
	return func(yield func(store.Item, error) bool) {
		seen := map[resource.Key]bool{} // with another value
		for _, value := range req.Values {
			for item, err := range s.cfg.Indexer.Indexes().ByIndex(req.Index, value) {
				namespace, _ := item.Key.Split()
				if err == nil && (seen[item.Key] ||
					req.Namespace != "" && namespace != req.Namespace) {
					continue
				}
				seen[item.Key] = true
				if !yield(item, err) || err != nil {
					return
				}
			}
		}
	}
}
