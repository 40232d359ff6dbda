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

// topic is one that events have gone to. It is immutable: the number of its lanes is the modulus
// that keeps an object's events together.
type topic struct {
	name            string
	maxMessageBytes int // max.message.bytes; 0 when it is not known
	lanes           []*lane
	// partitions that the topic had when it was looked up; at least as many as lanes.
	partitions int
}

// missing remembers for a moment that a topic does not exist, so that its events do not each look
// it up.
type missing struct {
	until time.Time
	err   error
}

const missingFor = time.Second

// laneOf returns the lane of an event, and looks up its topic if that is new.
func (s *Sink) laneOf(
	ctx context.Context, template *event.Template, e *event.Event,
) (*lane, error) {
	t, err := s.topicOf(ctx, template, e)
	switch {
	case err != nil:
		return nil, err
	case e.Part > 0: // a topic of dead letters may have fewer
		return t.lanes[(e.Part-1)%len(t.lanes)], nil
	}
	return t.lanes[partitionOf(e.PartitionKey, len(t.lanes))], nil
}

// topicOf returns the topic of an event, and looks it up if it is new.
func (s *Sink) topicOf(
	ctx context.Context, template *event.Template, e *event.Event,
) (*topic, error) {
	name := s.names.Get().(*[]byte)
	defer s.names.Put(name)
	*name = template.Append((*name)[:0], e, event.AppendTopicPart)
	t, err := s.lookupTopic(*name)
	if err == nil && t == nil {
		t, err = s.resolveTopic(ctx, string(*name))
	}
	return t, err
}

// lookupTopic returns a topic in use, or the error of one that was missing a moment ago.
func (s *Sink) lookupTopic(name []byte) (*topic, error) {
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

// resolveTopic looks a topic up, and creates it where the configuration says so.
func (s *Sink) resolveTopic(ctx context.Context, name string) (*topic, error) {
	if ctx.Err() != nil { // whoever asks does not want to wait
		return nil, stoppedError(ctx)
	}
	if err := checkTopic(name); err != nil {
		return nil, asRefused(err)
	}
	c := s.connected()
	if c == nil {
		return nil, asReconnect(errNotOpen)
	}
	if most := s.config.Topics.Max; len(s.inUse()) >= most {
		return nil, asRefused(fmt.Errorf("topic %q: events go to %d topics already; route by "+
			"fields with fewer values, or raise maxTopics", name, most))
	}
	l, err := s.findTopic(ctx, c, name)
	if err != nil {
		return nil, s.notFound(ctx, name, err)
	}
	if err := s.recallNew(ctx, name, time.Now().Add(leaderTimeout)); err != nil {
		return nil, err
	}
	limit, most, err := s.checkSettings(ctx, c, name, l)
	if err != nil {
		return nil, asRetry(err) // its events wait until somebody has changed the topic
	}
	t := &topic{name: name, maxMessageBytes: most, partitions: len(l.leaders)}
	for p := range s.pinnedPartitions(name, len(l.leaders)) {
		t.lanes = append(t.lanes, newLane(s, c, name, p, limit))
	}
	defer s.countUnused()
	return s.addTopic(t), nil
}

// addTopic adds a topic, unless another call was faster: then it returns that call's topic.
func (s *Sink) addTopic(t *topic) *topic {
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
	case classify(err) == stopped:
		return stoppedError(ctx)
	case code == kafkago.InvalidTopic:
		err = asRefused(err)
	case errors.Is(err, errMalformed):
		err = asRetry(err) // only the events of this topic wait
	case code == 0 || classify(err) == denied:
		err = asReconnect(err)
	default:
		err = asRetry(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.missing, func(_ string, m missing) bool { return now.After(m.until) })
	s.missing[name] = missing{until: now.Add(missingFor), err: err}
	return err
}

// findTopic returns a topic's layout, once every partition of it is known.
func (s *Sink) findTopic(ctx context.Context, c *cluster, name string) (layout, error) {
	l, err := c.refresh(ctx, name)
	if !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return l, err
	}
	if s.config.Topics.Create == nil {
		return layout{}, &noTopicError{name}
	}
	if err := c.create(ctx, name, s.config.Topics.Create); err != nil {
		return layout{}, fmt.Errorf("create topic %q: %w", name,
			needing("Create on the topic", err))
	}
	l, err = s.awaitTopic(ctx, c, name)
	if err != nil {
		return layout{}, fmt.Errorf("create topic %q: %w", name, err)
	}
	s.log.Info("created topic", "topic", name, "partitions", len(l.leaders), "replicas", l.replicas)
	return l, nil
}

// awaitTopic waits until a topic that was just created is ready: each of its partitions has a
// leader. The number of partitions is read and not assumed: somebody else may have created the
// topic at the same moment, with another number.
func (s *Sink) awaitTopic(ctx context.Context, c *cluster, name string) (layout, error) {
	deadline := time.Now().Add(s.config.Connection.Timeout)
	for {
		l, err := c.refresh(ctx, name)
		if err == nil && len(l.leaders) > 0 && !slices.Contains(l.leaders, -1) {
			return l, nil
		}
		if v := classify(err); v == stopped || v == denied {
			return l, err
		}
		if time.Now().After(deadline) {
			return l, fmt.Errorf("it is not there after %v: %w", s.config.Connection.Timeout,
				errors.Join(err, errNoLeader))
		}
		if ratelimit.Sleep(ctx, 100*time.Millisecond) != nil {
			return l, errCallerGone
		}
	}
}

// checkTopics checks the topics in use for changes, and looks up those that the templates name
// without an event.
func (s *Sink) checkTopics(ctx context.Context) error {
	for _, t := range s.inUse() {
		s.recheckTopic(ctx, t)
	}
	for _, template := range []*event.Template{
		s.config.Topics.Events, s.config.Topics.DeadLetters,
	} {
		if template == nil {
			continue
		}
		const field = "{}" // no topic has it in its name
		name := template.Pattern(field, map[string]string{"cluster": s.config.Cluster},
			event.AppendTopicPart)
		if strings.Contains(name, field) || s.config.Cluster == "" {
			continue
		}
		if t, _ := s.lookupTopic([]byte(name)); t != nil {
			continue
		}
		if _, err := s.resolveTopic(ctx, name); err != nil {
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

// recheckTopic warns when a topic has another number of partitions than the sink uses. Events stay
// where they are: another modulus would put an object's next event into another partition than its
// last.
func (s *Sink) recheckTopic(ctx context.Context, t *topic) {
	l, err := s.connected().refresh(ctx, t.name)
	if err != nil {
		s.log.Warn("can't look up a topic in use", "topic", t.name, "err", err)
		return
	}
	switch now, pinned := len(l.leaders), len(t.lanes); {
	case now > pinned:
		s.log.Warn("topic has more partitions than the sink uses; when consumers have read what "+
			"is there, set newPartitions: use, and restart the bridge",
			"topic", t.name, "partitions", now, "used", pinned)
	case now < pinned:
		s.log.Error("topic has fewer partitions than the sink uses: it was recreated; restart "+
			"the bridge",
			"topic", t.name, "partitions", now, "used", pinned)
	}
}
