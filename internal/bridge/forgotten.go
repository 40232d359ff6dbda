package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/standby"
)

// Before its first list, a unit of which nothing is known asks its sinks whether their brokers hold
// events of an earlier run. A broker that does not answer in time is asked when it is available: see
// informer.Config.Holds.
const (
	// askPatience is how long a first list waits for the answers. Sinks that are available open within
	// that, so that usually all of a unit's sinks have the same epoch.
	askPatience = time.Second
	// askPatienceReplicas is the same where there are other replicas. They know the informer's epoch by
	// the leader's progress, but not by how much one sink is ahead of it. So no sink is asked later.
	askPatienceReplicas = 10 * time.Second
	// lookPatience is how long an available sink that can't look is asked again, each second.
	lookPatience = 10 * time.Second
)

// errNotAnswered is the cause with which a question ends.
var errNotAnswered = errors.New("the sink has not answered yet")

// forgotten asks the sinks of a unit of which nothing is known whether they hold events of it. Where
// other replicas have led, their progress tells who has published before; the first one of several
// may come after a bridge that was alone.
func (u *unit) forgotten(b *Bridge) func(context.Context) informer.Forgotten {
	return func(ctx context.Context) (found informer.Forgotten) {
		if b.replica.othersLed() {
			return found
		}
		patience := askPatience
		if b.replica != nil {
			patience = askPatienceReplicas
		}
		var mu sync.Mutex
		var asking sync.WaitGroup
		for _, binding := range u.cfg.Sinks {
			asking.Go(func() { // at once: several brokers may be unavailable
				limited, cancel := context.WithTimeoutCause(ctx, patience, errNotAnswered)
				defer cancel()
				holds, last, err := u.remembers(limited, b, binding.Sink)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil && limited.Err() != nil && b.replica == nil:
					found.Unasked = append(found.Unasked, binding.Sink)
				case err != nil:
					u.cantTell(binding.Sink, err)
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
}

// holds asks a sink that was unavailable before the first list, when it is available.
func (u *unit) holds(b *Bridge) func(context.Context, string) (bool, int, error) {
	return func(ctx context.Context, sink string) (holds bool, epoch int, err error) {
		if out := b.outlets.get(sink); out != nil {
			select {
			case <-out.Opened():
			case <-ctx.Done():
			}
		}
		for began := time.Now(); ; {
			holds, epoch, err = u.remembers(ctx, b, sink)
			switch {
			case err == nil:
				return holds, epoch, nil
			case ctx.Err() != nil, errors.Is(err, publisher.ErrStopped):
				return false, 0, err
			case time.Since(began) > lookPatience:
				u.cantTell(sink, err)
				return false, 0, nil
			}
			_ = ratelimit.Sleep(ctx, time.Second)
		}
	}
}

func (u *unit) cantTell(sink string, err error) {
	u.log.Info("can't tell whether the sink holds events of an earlier run; if it does, what was deleted since is not told", "sink", sink, "err", err)
}

// remembers asks a sink whether its broker holds events of the unit, and of which epoch the last of
// them are.
func (u *unit) remembers(
	ctx context.Context, b *Bridge, sink string,
) (remembers bool, epoch int, err error) {
	out := b.outlets.get(sink)
	if out == nil {
		return false, 0, nil
	}
	maker, err := event.NewMaker(event.MakerConfig{
		Cluster: b.cfg.Cluster, Informer: u.cfg.Informer, Type: u.cfg.Type, Namespace: u.cfg.Namespace, Shard: u.cfg.Shard,
	})
	if err != nil {
		return false, 0, err
	}
	about := maker.Synced("", event.Listing{}, event.Era{}, time.Time{})
	told := u.told(&about)
	remembers, err = out.Remembers(ctx, &about, func(t sinks.Trace) bool {
		ours := told(t)
		if ours {
			if told := event.EpochOf(t.MessageID); told <= standby.MaxCount { // else it is forged
				epoch = max(epoch, told)
			}
		}
		return ours
	})
	return remembers, epoch, err
}

// told says whether a message is of this unit: about an object that it tells of, or about the unit itself. With shards only the latter: an object may have
// been another shard's.
func (u *unit) told(about *event.Event) func(sinks.Trace) bool {
	self := u.cfg.Informer + "/" + strings.TrimSuffix(about.ID, "synced/")
	objects := u.cfg.Type.String() + "/"
	if u.cfg.Namespace != "" {
		objects += u.cfg.Namespace + "/"
	}
	return func(t sinks.Trace) bool {
		if rest, ok := strings.CutPrefix(t.MessageID, self); ok && isAboutInformer(rest) {
			return true
		}
		return u.cfg.Shard.All() && strings.HasPrefix(t.MessageID, u.cfg.Informer+"/") && strings.HasPrefix(t.PartitionKey, objects)
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
