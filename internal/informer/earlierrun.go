package informer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/controller"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Before its first list, an informer without any state asks its sinks whether their brokers hold
// events of an earlier run. A broker that does not answer in time is asked when it is available:
// see processor.Env.HoldsEarlierRun.
const (
	// askPatience is how long a first list waits for the answers. Sinks that are available open
	// within that, so that usually all of its sinks have the same epoch.
	askPatience = time.Second
	// askPatienceReplicas is the same where there are other replicas. They know the informer's
	// epoch by the leader's progress, but not by how much one sink is ahead of it. So no sink is
	// asked later, and one that takes longer than this to open never gets the gap. It is only
	// waited for while no replica has ever led, which is once.
	askPatienceReplicas = 10 * time.Second
	// retryPatience is for how long an available sink that fails to answer is asked again, each
	// second.
	retryPatience = 10 * time.Second
)

// errNotAnswered is the cause with which a question ends.
var errNotAnswered = errors.New("the sink has not answered yet")

// findEarlierRuns asks the sinks of a unit without any state whether they hold events of an earlier
// run. Where other replicas have led, their progress shows who has published before; the first one
// of several may come after a bridge that was alone.
func (i *Informer) findEarlierRuns(ctx context.Context) (found controller.EarlierRuns) {
	isAlone := i.env.Replicas == nil
	if !isAlone && i.env.Replicas.OthersLed() {
		return found
	}
	patience := askPatience
	if !isAlone {
		patience = askPatienceReplicas
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, binding := range i.cfg.Sinks {
		asking.Go(func() { // at once: several brokers may be unavailable
			limited, cancel := context.WithTimeoutCause(ctx, patience, errNotAnswered)
			defer cancel()
			holds, last, err := i.findEarlierRun(limited, binding.Sink)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && limited.Err() != nil && isAlone:
				found.Unasked = append(found.Unasked, binding.Sink)
			case err != nil:
				i.logUnknown(binding.Sink, err)
			case holds:
				found.Holding, found.Epoch = append(found.Holding, binding.Sink), max(found.Epoch, last)
			}
		})
	}
	asking.Wait()
	slices.Sort(found.Holding)
	slices.Sort(found.Unasked)
	return found
}

// holdsEarlierRun asks a sink that was unavailable before the first list, when it is available.
func (i *Informer) holdsEarlierRun(ctx context.Context, sink string) (holds bool, epoch int, err error) {
	if s, ok := i.env.Sink(sink); ok {
		select {
		case <-s.Publisher.Opened():
		case <-ctx.Done():
		}
	}
	for began := time.Now(); ; {
		holds, epoch, err = i.findEarlierRun(ctx, sink)
		switch {
		case err == nil:
			return holds, epoch, nil
		case ctx.Err() != nil, errors.Is(err, publisher.ErrStopped):
			return false, 0, err
		case time.Since(began) > retryPatience:
			i.logUnknown(sink, err)
			return false, 0, nil
		}
		_ = ratelimit.Sleep(ctx, time.Second)
	}
}

func (i *Informer) logUnknown(sink string, err error) {
	i.log.Info("can't find out whether the sink holds events of an earlier run; if it does, what was "+
		"deleted since is not reported",
		"sink", sink, "err", err)
}

// findEarlierRun asks a sink whether its broker holds events of the unit, and returns the epoch of
// the last of them.
func (i *Informer) findEarlierRun(
	ctx context.Context, sink string,
) (found bool, epoch int, err error) {
	s, ok := i.env.Sink(sink)
	if !ok {
		return false, 0, nil
	}
	maker, err := event.NewMaker(i.cfg.makerConfig(i.env.Cluster))
	if err != nil {
		return false, 0, err
	}
	about := maker.Synced("", event.Listing{}, event.IDSuffix{}, time.Time{})
	isOurs := i.isOurs(&about)
	found, err = s.Publisher.FindEarlierRun(ctx, &about, func(t sinks.Trace) bool {
		ours := isOurs(t)
		if ours {
			// Else it is forged. This run publishes in the next epoch, which other replicas have to
			// accept.
			if e := event.EpochOf(t.MessageID); e < standby.MaxCount {
				epoch = max(epoch, e)
			}
		}
		return ours
	})
	return found, epoch, err
}

// isOurs returns a function that reports whether a message is of this unit: about one of its
// objects, or about the informer itself. With shards only the latter: an object may have been
// another shard's.
func (i *Informer) isOurs(about *event.Event) func(sinks.Trace) bool {
	self := i.cfg.Informer + "/" + strings.TrimSuffix(about.ID, "synced/")
	objects := i.cfg.Type.String() + "/"
	if i.cfg.Namespace != "" {
		objects += i.cfg.Namespace + "/"
	}
	return func(t sinks.Trace) bool {
		if rest, ok := strings.CutPrefix(t.MessageID, self); ok && isAboutInformer(rest) {
			return true
		}
		return i.cfg.Shard.All() && strings.HasPrefix(t.MessageID, i.cfg.Informer+"/") &&
			strings.HasPrefix(t.PartitionKey, objects)
	}
}

func isAboutInformer(rest string) bool {
	for _, op := range []event.Op{event.Synced, event.Gap, event.Quarantined, event.Progress} {
		if strings.HasPrefix(rest, string(op)+"/") {
			return true
		}
	}
	return false
}
