package bridge

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/standby"
)

// lookPatience is how long a first list waits for a sink, to ask it whether it holds events of an earlier run.
const lookPatience = 10 * time.Second

// forgotten asks the sinks of a unit of which nothing is known whether they hold events of it, and of which epoch the last of them are. Where other
// replicas have led, their progress tells who has published before; the first one of several may come after a bridge that was alone.
func (u *unit) forgotten(b *Bridge) func(context.Context) ([]string, int) {
	return func(ctx context.Context) (found []string, epoch int) {
		if b.replica.othersLed() {
			return nil, 0
		}
		var mu sync.Mutex
		var asking sync.WaitGroup
		for _, binding := range u.cfg.Sinks {
			out := b.outlets.get(binding.Sink)
			if out == nil {
				continue
			}
			asking.Go(func() { // at once: several brokers may be unavailable
				remembers, last, err := u.remembers(ctx, b, out.Publisher)
				if err != nil {
					u.log.Info("can't tell whether the sink holds events of an earlier run; if it does, what was deleted since is not told", "sink", binding.Sink, "err", err)
				}
				if remembers {
					mu.Lock()
					defer mu.Unlock()
					found, epoch = append(found, binding.Sink), max(epoch, last)
				}
			})
		}
		asking.Wait()
		slices.Sort(found)
		return found, epoch
	}
}

func (u *unit) remembers(ctx context.Context, b *Bridge, p *publisher.Publisher) (remembers bool, epoch int, err error) {
	maker, err := event.NewMaker(event.MakerConfig{
		Cluster: b.cfg.Cluster, Informer: u.cfg.Informer, Type: u.cfg.Type, Namespace: u.cfg.Namespace, Shard: u.cfg.Shard,
	})
	if err != nil {
		return false, 0, err
	}
	about := maker.Synced("", event.Listing{}, event.Era{}, time.Time{})
	told := u.told(&about)
	remembers, err = p.Remembers(ctx, &about, func(t sinks.Trace) bool {
		ours := told(t)
		if ours {
			if told := event.EpochOf(t.MessageID); told <= standby.MaxCount { // else it is forged
				epoch = max(epoch, told)
			}
		}
		return ours
	}, lookPatience)
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
