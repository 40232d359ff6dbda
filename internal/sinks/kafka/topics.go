package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// topic is one that events have gone to. It is immutable: the number of its lanes is the modulus
// that keeps an object's events together.
type topic struct {
	name  string
	limit *sinks.SizeLimit
	lanes []*lane
	// partitions that the topic had when it was looked up; at least as many as lanes.
	partitions int
	view       bool          // it has the events of a view
	keeps      time.Duration // keptFor its settings when it was looked up
	recreated  *atomic.Bool  // the sink has made it again
	missed     *atomic.Bool  // it was not there when it was last inspected
	// why it can't hold its view any more; nil for nothing
	unusable *atomic.Pointer[sinks.Error]
}

// missingTopics remembers for a moment that a topic does not exist, so that its events do not each
// look it up.
type missingTopics struct {
	until time.Time
	err   error
}

const missingFor = time.Second

// laneOf returns the lane of an event, and looks up its topic if that is new.
func (s *Sink) laneOf(ctx context.Context, template *event.Template, e *event.Event) (*lane, error) {
	t, err := s.topicOf(ctx, template, e)
	if err != nil {
		return nil, err
	}
	return t.laneOf(e), nil
}

func (t *topic) laneOf(e *event.Event) *lane {
	if e.Part > 0 { // a topic of dead letters may have fewer
		return t.lanes[(e.Part-1)%len(t.lanes)]
	}
	return t.lanes[partitionOf(e.PartitionKey, len(t.lanes))]
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
		t, err = s.resolveTopic(ctx, string(*name), template)
	}
	return t, err
}

// lookupTopic returns a topic in use, or the error of one that was missing a moment ago.
func (s *Sink) lookupTopic(name []byte) (*topic, error) {
	s.mu.RLock()
	t, m := s.topics[string(name)], missingTopics{}
	if t == nil {
		m = s.missing[string(name)]
	}
	s.mu.RUnlock()
	if t == nil && m.err != nil && time.Now().Before(m.until) {
		return nil, m.err
	}
	return t, nil
}

// resolveTopic looks a topic of a template up, and creates it where the configuration says so.
func (s *Sink) resolveTopic(
	ctx context.Context, name string, template *event.Template,
) (*topic, error) {
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
	if most := s.config.MaxTopics; len(s.inUse()) >= most {
		return nil, asRefused(fmt.Errorf("topic %q: events go to %d topics already; route by "+
			"fields with fewer values, or raise maxTopics", name, most))
	}
	view := s.config.View && template == s.topic
	l, err := s.findTopic(ctx, c, name, view)
	if err != nil {
		return nil, s.notFound(ctx, name, err)
	}
	if err := s.readBackNew(ctx, name, time.Now().Add(leaderTimeout)); err != nil {
		return nil, err
	}
	most, keeps, err := s.checkSettings(ctx, c, name, l, view)
	if err != nil {
		return nil, asRetry(err) // its events wait until somebody has changed the topic
	}
	t := &topic{
		name: name, limit: sinks.NewSizeLimit(most), partitions: len(l.leaders), view: view,
		keeps:     keeps,
		recreated: new(atomic.Bool), missed: new(atomic.Bool), unusable: new(atomic.Pointer[sinks.Error]),
	}
	for p := range s.pinnedPartitions(name, len(l.leaders)) {
		added := newLane(s, c, name, p, s.config.MaxBatchBytes)
		added.limit = t.limit
		t.lanes = append(t.lanes, added)
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
	maps.DeleteFunc(s.missing, func(_ string, m missingTopics) bool { return now.After(m.until) })
	s.missing[name] = missingTopics{until: now.Add(missingFor), err: err}
	return err
}

// findTopic returns a topic's layout, once every partition of it is known.
func (s *Sink) findTopic(ctx context.Context, c *cluster, name string, view bool) (layout, error) {
	l, err := c.refresh(ctx, name)
	if !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return l, err
	}
	if s.config.CreateTopics == nil {
		return layout{}, &noTopicError{name}
	}
	if err := c.create(ctx, name, s.creation(view)); err != nil {
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

// creation says how a missing topic is made. A view's topic of dead letters is none itself: in a
// compacted topic a letter would replace the earlier ones of its object.
func (s *Sink) creation(view bool) *CreateTopics {
	how := s.config.CreateTopics
	if !s.config.View || view || how.Config[cleanupPolicy] == "" {
		return how
	}
	letters := *how
	letters.Config = maps.Clone(how.Config)
	letters.Config[cleanupPolicy] = "delete"
	return &letters
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
		s.topic, s.letters,
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
		if _, err := s.resolveTopic(ctx, name, template); err != nil {
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

// What happens with partitions that a topic has got since an earlier run.
const (
	// KeepPartitions uses as many partitions as before.
	KeepPartitions = "keep"
	// UsePartitions uses all: the later events of an object may be in another partition than the
	// earlier ones.
	UsePartitions = "use"
)

// partitionPins has how many partitions of each topic got events in earlier runs, by the saved
// position.
type partitionPins struct {
	mu     sync.Mutex
	pinned map[string]int // guarded by mu; replaced and never changed
}

// load takes the pins from a saved position.
func (s *partitionPins) load(saved position) {
	before := maps.Clone(saved.Partitions)
	if before == nil {
		before = map[string]int{}
	}
	for name, offsets := range saved.Topics {
		before[name] = len(offsets)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned = before
}

func (s *partitionPins) count(topic string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinned[topic]
}

// idle returns the pins of idle topics that have no offsets: they stay valid.
func (s *partitionPins) idle(offsets map[string][]savedOffset, idle map[string]int64) map[string]int {
	s.mu.Lock()
	before := s.pinned
	s.mu.Unlock()
	pins := map[string]int{}
	for name := range idle {
		if n := before[name]; n > 0 && offsets[name] == nil {
			pins[name] = n
		}
	}
	return pins
}

// pinnedPartitions returns how many partitions of a topic get events. now is how many it has. More
// partitions move keys: Kafka's consumers read partitions concurrently, so that an object's later
// events could be read before its earlier ones.
func (s *Sink) pinnedPartitions(topic string, now int) int {
	before := s.pins.count(topic)
	if before == 0 || before >= now {
		return now // new, or recreated
	}
	log := s.log.With("topic", topic, "partitions", now, "before", before)
	if s.config.NewPartitions == UsePartitions {
		log.Warn("topic has more partitions than in the last run, and all are used: later events " +
			"of an object may be in another partition than its earlier ones")
		return now
	}
	log.Warn("topic has more partitions than in the last run; events stay in those of before, so " +
		"that each object's are in one: " +
		"when consumers have read what is there, set newPartitions: use, and restart the bridge")
	return before
}

// applyPins removes partitions from the topics that were looked up before the pins were known.
func (s *Sink) applyPins() {
	for _, t := range s.inUse() {
		if n := s.pinnedPartitions(t.name, len(t.lanes)); n < len(t.lanes) {
			fewer := *t
			fewer.lanes = t.lanes[:n:n]
			s.mu.Lock()
			s.topics[t.name] = &fewer
			s.mu.Unlock()
		}
	}
	s.countUnused()
}

// countUnused shows how many partitions of the topics in use get nothing.
func (s *Sink) countUnused() {
	unused := 0
	for _, t := range s.inUse() {
		unused += max(0, t.partitions-len(t.lanes))
	}
	s.metrics.unused.Set(float64(unused))
}

// partitionOf is the partition that Java's default partitioner gives a record with this key.
func partitionOf(key string, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(data string) uint32 {
	const (
		seed  uint32 = 0x9747b28c
		mix   uint32 = 0x5bd1e995
		shift        = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= mix
		k ^= k >> shift
		k *= mix
		h = h*mix ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= mix
	}
	h ^= h >> 13
	h *= mix
	h ^= h >> 15
	return h
}
