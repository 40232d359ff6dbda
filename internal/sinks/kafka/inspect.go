package kafka

import (
	"context"
	"errors"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Inspect implements sinks.Inspector: it takes over what an administrator has changed at the topics
// in use.
func (s *Sink) Inspect(ctx context.Context) []sinks.Loss {
	c := s.connected()
	if c == nil {
		return nil
	}
	lanes := 0
	for _, t := range s.inUse() { // in another order each time
		if lanes += len(t.lanes); lanes > len(t.lanes) && lanes > maxInspected {
			break
		}
		s.refreshLimit(ctx, c, t)
		s.inspectTopic(ctx, c, t)
	}
	return s.losses.Take()
}

// maxInspected bounds how many partitions one call inspects, at a request or two for each.
const maxInspected = 200

// refreshLimit looks the limit of a topic up again that events exceed.
func (s *Sink) refreshLimit(ctx context.Context, c *cluster, t *topic) {
	raised := t.limit.Refresh(func() (int, error) { return c.maxMessageBytes(ctx, t.name) })
	if raised {
		s.log.Info("the topic may take larger batches again", "topic", t.name, "limit",
			t.limit.Load())
	}
}

// inspectTopic looks whether each partition still has what it has acknowledged, and makes a topic
// that is missing where the configuration says so. What does not answer shows nothing.
func (s *Sink) inspectTopic(ctx context.Context, c *cluster, t *topic) {
	_, err := c.refresh(ctx, t.name)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) && s.config.CreateTopics != nil {
		s.recreateTopic(ctx, c, t)
	}
	if err != nil {
		return
	}
	for _, l := range t.lanes {
		if l.hasShrunk(ctx) && ratelimit.Sleep(ctx, confirmLoss) == nil {
			_, _ = c.refresh(ctx, t.name) // a deposed leader may have answered
			l.inspect(ctx)
		}
		if s.config.View {
			l.inspectStart(ctx)
		}
	}
}

// confirmLoss is how long after the first sign of a loss a partition is asked again.
const confirmLoss = time.Second

// hasShrunk reports whether the partition ends before what it has acknowledged.
func (l *lane) hasShrunk(ctx context.Context) bool {
	saved := l.saved.Load()
	if saved == nil {
		return false
	}
	end, err := l.cluster.offset(ctx, l.topic, l.partition, latest)
	return err == nil && end < saved.offset
}

// inspect is hasShrunk for the lane's next batch, while no other is in flight.
func (l *lane) inspect(ctx context.Context) {
	if l.busy.Acquire(ctx, 1) != nil {
		return
	}
	defer l.busy.Release(1)
	end, err := l.cluster.offset(ctx, l.topic, l.partition, latest)
	if err != nil || end >= l.next {
		return
	}
	l.reportLost(end)
	l.next = end
	l.publishSaved()
}

// inspectStart reports that records were deleted from a compacted partition: its log begins later
// than before, which compaction does not cause.
func (l *lane) inspectStart(ctx context.Context) {
	start, err := l.cluster.offset(ctx, l.topic, l.partition, earliest)
	if err != nil {
		return
	}
	if before := l.logStart.Swap(start); before >= 0 && start > before {
		l.sink.losses.Add(sinks.Loss{
			Destination: l.name, Reason: sinks.Purged, Before: uint64(before), Now: uint64(start),
		})
	}
}

// reasonOfLoss is why a partition's log ends at an offset before what it had acknowledged.
func (s *Sink) reasonOfLoss(topic string, end int64) string {
	if t, _ := s.lookupTopic([]byte(topic)); t != nil && t.recreated.Load() || end == 0 {
		return sinks.Recreated
	}
	return sinks.Truncated
}

// recreateTopic makes a topic in use that somebody has deleted, with as many partitions as it had:
// each object's events stay in one.
func (s *Sink) recreateTopic(ctx context.Context, c *cluster, t *topic) {
	how := *s.creation(s.config.View && t.view)
	how.Partitions = t.partitions
	err := c.create(ctx, t.name, &how)
	if err == nil {
		_, err = s.awaitTopic(ctx, c, t.name)
	}
	if err != nil {
		s.log.Warn("a topic in use was deleted and can't be created", "topic", t.name, "err", err)
		return
	}
	t.recreated.Store(true)
	s.log.Warn("a topic in use was deleted; it is created again, empty", "topic", t.name,
		"partitions", t.partitions)
}
