package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// topic is one that events have gone to. It does not change: the number of its lanes is the modulus that keeps an object's
// events together.
type topic struct {
	name  string
	most  int // max.message.bytes; 0 when it is not known
	lanes []*lane
	// partitions that there were when it was met; as many as lanes, or more.
	partitions int
}

// missing remembers for a moment that a topic is not there, so that its events do not ask for it one by one.
type missing struct {
	until time.Time
	err   error
}

const missingFor = time.Second

// maxTopics is how many topics the events of a sink may go to. A template may have fields that the
// users of a cluster choose: each topic takes memory here and in the brokers.
var maxTopics = 1000

// laneOf gives the lane of an event, looking its topic up when it is a new one.
func (s *Sink) laneOf(ctx context.Context, template *event.Template, e *event.Event) (*lane, error) {
	name := s.names.Get().(*[]byte)
	defer s.names.Put(name)
	*name = template.Append((*name)[:0], e, event.AppendTopicPart)
	t, err := s.known(*name)
	if err == nil && t == nil {
		t, err = s.meet(ctx, string(*name))
	}
	if err != nil {
		return nil, err
	}
	return t.lanes[partitionOf(e.PartitionKey, len(t.lanes))], nil
}

// known gives a topic that has been met, or the error of one that was not there a moment ago.
func (s *Sink) known(name []byte) (*topic, error) {
	s.mu.RLock()
	t, m := s.topics[string(name)], missing{}
	if t == nil {
		m = s.missing[string(name)]
	}
	s.mu.RUnlock()
	if t == nil && m.err != nil && time.Now().Before(m.until) {
		return nil, m.err
	}
	return t, nil
}

// meet looks a topic up, and creates it where the configuration says so.
func (s *Sink) meet(ctx context.Context, name string) (*topic, error) {
	if err := checkTopic(name); err != nil {
		return nil, refuse(err)
	}
	c := s.connected()
	if c == nil {
		return nil, reconnect(errNotOpen)
	}
	if len(s.inUse()) >= maxTopics {
		return nil, refuse(fmt.Errorf("topic %q: events go to %d topics already; route by fields with fewer values", name, maxTopics))
	}
	l, err := s.find(ctx, c, name)
	if err != nil {
		return nil, s.notFound(ctx, name, err)
	}
	if err := s.recallNew(ctx, name, time.Now().Add(deposed)); err != nil {
		return nil, err
	}
	limit, most := s.examine(ctx, c, name, l)
	t := &topic{name: name, most: most, partitions: len(l.leaders)}
	for p := range s.spread(name, len(l.leaders)) {
		t.lanes = append(t.lanes, newLane(s, c, name, p, limit))
	}
	defer s.countUnused()
	return s.keep(t), nil
}

// keep enters a topic, unless another call was faster: then it is that call's topic.
func (s *Sink) keep(t *topic) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.missing, t.name)
	if first := s.topics[t.name]; first != nil {
		return first
	}
	s.topics[t.name] = t
	return t
}

// notFound remembers why a topic can't be used.
func (s *Sink) notFound(ctx context.Context, name string, err error) error {
	switch code, _ := errors.AsType[kafkago.Error](err); {
	case sort(err) == stopped:
		return gone(ctx)
	case code == kafkago.InvalidTopic:
		err = refuse(err)
	case errors.Is(err, errMalformed):
		err = retry(err) // only what goes to this topic waits
	case code == 0 || sort(err) == denied:
		err = reconnect(err)
	default:
		err = retry(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.missing, func(_ string, m missing) bool { return now.After(m.until) })
	s.missing[name] = missing{until: now.Add(missingFor), err: err}
	return err
}

// find gives a topic's layout, once every partition of it is known.
func (s *Sink) find(ctx context.Context, c *cluster, name string) (layout, error) {
	l, err := c.refresh(ctx, name)
	if !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return l, err
	}
	if s.config.CreateTopics == nil {
		return layout{}, &noTopicError{name}
	}
	if err := c.create(ctx, name, s.config.CreateTopics); err != nil {
		return layout{}, fmt.Errorf("create topic %q: %w", name, err)
	}
	l, err = s.await(ctx, c, name)
	if err != nil {
		return layout{}, fmt.Errorf("create topic %q: %w", name, err)
	}
	s.log.Info("created topic", "topic", name, "partitions", len(l.leaders), "replicas", l.replicas)
	return l, nil
}

// await waits until a topic that was just created is what was asked for, and each of its partitions has a leader. The number of
// partitions is read and not assumed: somebody else may have created the topic at the same moment, with another.
func (s *Sink) await(ctx context.Context, c *cluster, name string) (layout, error) {
	deadline := time.Now().Add(s.config.Timeout)
	for {
		l, err := c.refresh(ctx, name)
		if err == nil && len(l.leaders) > 0 && !slices.Contains(l.leaders, -1) {
			return l, nil
		}
		if v := sort(err); v == stopped || v == denied {
			return l, err
		}
		if time.Now().After(deadline) {
			return l, fmt.Errorf("it is not there after %v: %w", s.config.Timeout, errors.Join(err, errNoLeader))
		}
		if ratelimit.Sleep(ctx, 100*time.Millisecond) != nil {
			return l, errCallerGone
		}
	}
}

// checkTopics looks at the topics that are known: at those in use whether they have changed, and at those that the
// templates name without an event whether they are there.
func (s *Sink) checkTopics(ctx context.Context) error {
	for _, t := range s.inUse() {
		s.recheck(ctx, t)
	}
	for _, template := range []*event.Template{s.config.Topic, s.config.DeadLetterTopic} {
		if template == nil {
			continue
		}
		const field = "{}" // no topic has it in its name
		name := template.Pattern(field, map[string]string{"cluster": s.config.Cluster}, event.AppendTopicPart)
		if strings.Contains(name, field) || s.config.Cluster == "" {
			continue
		}
		if t, _ := s.known([]byte(name)); t != nil {
			continue
		}
		if _, err := s.meet(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) inUse() []*topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.topics))
}

// recheck tells when a topic has another number of partitions than its events are spread over. They stay where they are:
// another modulus would put an object's next event on another partition than its last.
func (s *Sink) recheck(ctx context.Context, t *topic) {
	l, err := s.connected().refresh(ctx, t.name)
	if err != nil {
		s.log.Warn("can't look up a topic in use", "topic", t.name, "err", err)
		return
	}
	switch now, pinned := len(l.leaders), len(t.lanes); {
	case now > pinned:
		s.log.Warn("topic has more partitions than the sink uses; when consumers have read what is there, set newPartitions: use, and restart the bridge",
			"topic", t.name, "partitions", now, "used", pinned)
	case now < pinned:
		s.log.Error("topic has fewer partitions than the sink uses: it was created anew; restart the bridge",
			"topic", t.name, "partitions", now, "used", pinned)
	}
}
