package kafka

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// position is a saved sink position: how far the partitions are written.
type position struct {
	Version int `json:"v"`
	// Topics hold a saved offset for each partition.
	Topics map[string][]savedOffset `json:"topics"`
	// Partitions is how many partitions of further topics get events: topics that had none since
	// the start.
	Partitions map[string]int `json:"partitions,omitempty"`
	// Idle are the topics of both that had no event since the start, with the time of the last
	// position that had them in use, in Unix seconds.
	Idle map[string]int64 `json:"idle,omitempty"`
	// Time of the last change. Partitions that are missing here have got nothing from this sink
	// before it, or were read back in this run and got nothing since (see idleSince).
	Time time.Time `json:"time"`
}

const positionVersion = 1

// savedOffset is the offset behind the last record of a partition that this sink knows to be
// stored, and how its producer continues there.
type savedOffset struct {
	offset   int64
	producer int64
	epoch    int16
	sequence int32
	start    int64    // of the log of a view; -1 where it is not known
	old      storedAt // of a topic that is no view; zero where it is not known
}

// unused is the saved offset of a partition that the sink has not written to.
var unused = savedOffset{offset: -1, producer: -1, start: -1}

// lookup returns that of a partition, unused when there is none.
func (p position) lookup(topic string, partition int) savedOffset {
	if offsets := p.Topics[topic]; partition < len(offsets) {
		return offsets[partition]
	}
	return unused
}

// MarshalJSON is short: there is one for each partition.
func (p savedOffset) MarshalJSON() ([]byte, error) {
	n := []int64{p.offset, p.producer, int64(p.epoch), int64(p.sequence)}
	if p.start >= 0 || p.old.at != 0 {
		n = append(n, p.start+1) // earlier versions ignore this and what follows
	}
	if p.old.at != 0 {
		n = append(n, p.old.offset, p.old.at)
	}
	return json.Marshal(n)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *savedOffset) UnmarshalJSON(b []byte) error {
	var n [7]int64
	err := json.Unmarshal(b, &n)
	*p = savedOffset{n[0], n[1], int16(n[2]), int32(n[3]), n[4] - 1, storedAt{n[5], n[6]}}
	return err
}

// lastPosition keeps the last position, so that an unchanged position has the same bytes.
type lastPosition struct {
	mu    sync.Mutex
	last  position
	bytes []byte
}

// Position implements sinks.ReadBacker.
func (s *Sink) Position() []byte {
	now := time.Now() // before the offsets are read: what a new lane writes is later
	topics, idle := s.savedOffsets()
	partitions := s.pins.idle(topics, idle)
	p := &s.readBack.lastPosition
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes != nil && maps.EqualFunc(p.last.Topics, topics, slices.Equal[[]savedOffset]) &&
		maps.Equal(p.last.Partitions, partitions) && maps.Equal(p.last.Idle, idle) {
		return p.bytes
	}
	p.last = position{
		Version: positionVersion, Topics: topics, Partitions: partitions, Idle: idle,
		Time: s.readBack.positionTime(now).UTC(),
	}
	p.bytes, _ = json.Marshal(&p.last) // can't fail: strings, numbers and a time
	return p.bytes
}

// savedOffsets returns the offsets of all lanes, and which idle topics are kept.
func (s *Sink) savedOffsets() (topics map[string][]savedOffset, idle map[string]int64) {
	topics = map[string][]savedOffset{}
	for _, t := range s.inUse() {
		offsets := make([]savedOffset, len(t.lanes))
		for i, l := range t.lanes {
			switch offsets[i] = l.savedOffset(); {
			case offsets[i].offset < 0:
			case t.view:
				offsets[i].start = l.savedStart()
			default:
				offsets[i].old = l.savedOld()
			}
		}
		topics[t.name] = offsets
	}
	idle = s.readBack.idleSince(topics)
	maps.Copy(topics, s.readBack.idleTopics(idle))
	return topics, idle
}

// savedOffset is the lane's. One that has not started is where an earlier process has left it.
func (l *lane) savedOffset() savedOffset {
	if p := l.saved.Load(); p != nil {
		return *p
	}
	return l.sink.readBack.resumeAt(l.topic, l.partition)
}

// savedStart is where the log began when this or an earlier process has last looked; -1 where that
// is not known.
func (l *lane) savedStart() int64 {
	if at := l.logStart.at.Load(); at >= 0 {
		return at
	}
	return l.sink.readBack.savedAt(l.topic, l.partition).start
}

// savedOld is a storedAt of this or an earlier process; zero where there is none.
func (l *lane) savedOld() storedAt {
	if old := l.logStart.old.Load(); old != nil {
		return *old
	}
	return l.sink.readBack.resumeAt(l.topic, l.partition).old
}

// Outline implements sinks.Outliner: it keeps how many partitions of each topic get events, and the
// time, from which new partitions are read; not the offsets, nor how their producers continue.
func (s *Sink) Outline(saved []byte) []byte {
	p, ok := readPosition(saved)
	if !ok {
		return nil
	}
	out := position{
		Version: positionVersion, Partitions: maps.Clone(p.Partitions), Idle: p.Idle, Time: p.Time,
	}
	if out.Partitions == nil {
		out.Partitions = map[string]int{}
	}
	for name, offsets := range p.Topics {
		out.Partitions[name] = len(offsets)
	}
	b, _ := json.Marshal(&out)
	return b
}

// readPosition reads what Position returned; false when this version can't read it.
func readPosition(saved []byte) (position, bool) {
	var p position
	decoder := json.NewDecoder(bytes.NewReader(saved))
	if err := decoder.Decode(&p); err != nil || p.Version != positionVersion {
		return position{}, false
	}
	return p, true
}

// idleSince returns the topics of a position that the next run keeps as long as they get nothing,
// and since when they are idle. Of more than most it leaves out those that are idle longest: topics
// that are named by labels would add up over restarts. It keeps what the last run wrote to: a batch
// there may not be visible yet.
func (p position) idleSince(most int) map[string]int64 {
	since := map[string]int64{}
	for _, names := range []iter.Seq[string]{maps.Keys(p.Topics), maps.Keys(p.Partitions)} {
		for name := range names {
			since[name] = cmp.Or(p.Idle[name], p.Time.Unix())
		}
	}
	newest := slices.SortedFunc(maps.Keys(since), func(a, b string) int {
		return cmp.Or(cmp.Compare(since[b], since[a]), strings.Compare(a, b))
	})
	for _, name := range newest[min(most, len(newest)):] {
		if p.Idle[name] != 0 {
			delete(since, name)
		}
	}
	return since
}

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
	if s.config.View {
		s.inspectIdle(ctx, c)
	}
	return append(s.view.rows.begin(), s.losses.Take()...)
}

// maxInspected bounds how many partitions one call inspects, at a request or two for each.
const maxInspected = 200

// inspectIdle looks at the views that have got no event since the start. One that somebody has
// changed is looked up as by an event: then the next call inspects it. One that is missing is lost.
// It is not made: perhaps no event goes there any more.
func (s *Sink) inspectIdle(ctx context.Context, c *cluster) {
	lanes := 0
	for name, saved := range s.readBack.views() { // in another order each time
		if t, _ := s.lookupTopic([]byte(name)); t != nil {
			continue
		}
		if lanes += len(saved); lanes > len(saved) && lanes > maxInspected {
			return
		}
		_, err := c.refresh(ctx, name)
		if errors.Is(err, kafkago.UnknownTopicOrPartition) {
			if ratelimit.Sleep(ctx, confirmLoss) != nil {
				return
			}
			_, err = c.refresh(ctx, name) // a broker that starts may not have known it yet
		}
		switch {
		case errors.Is(err, kafkago.UnknownTopicOrPartition):
			s.readBack.forget(name)
			for p, at := range saved {
				if at.offset > 0 {
					s.losses.Add(sinks.Loss{
						Destination: laneName(name, p), Reason: sinks.Recreated,
						Before: uint64(at.offset),
					})
				}
			}
		case err != nil:
			return
		case s.hasChanged(ctx, c, name, saved):
			_, _ = s.resolveTopic(ctx, name, s.topic) // tried again by the next call
		}
	}
}

// hasChanged reports whether the log of a partition is not as the saved position has it.
func (s *Sink) hasChanged(ctx context.Context, c *cluster, name string, saved []savedOffset) bool {
	for p, at := range saved {
		if at.start < 0 {
			continue
		}
		start, err := c.offset(ctx, name, p, earliest)
		if err != nil {
			return false
		}
		end, err := c.offset(ctx, name, p, latest)
		if err != nil {
			return false
		}
		if start != at.start || end != at.offset {
			return true
		}
	}
	return false
}

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
	switch isGone := errors.Is(err, kafkago.UnknownTopicOrPartition); {
	case isGone && s.config.CreateTopics != nil:
		s.recreateTopic(ctx, c, t)
	case isGone && t.missed.Swap(true): // also before: a broker that starts may not know it yet
		for _, l := range t.lanes {
			s.blocked.set(l, err, 0)
		}
	}
	if err != nil {
		return
	}
	if t.view {
		s.inspectPolicy(ctx, c, t)
	}
	for _, l := range t.lanes {
		if t.missed.Load() {
			s.blocked.clear(l)
		}
		// what is no view first reads what an earlier process has left: see start
		isKnown := t.view || l.saved.Load() != nil
		if isKnown && l.hasShrunk(ctx) && ratelimit.Sleep(ctx, confirmLoss) == nil {
			_, _ = c.refresh(ctx, t.name) // a deposed leader may have answered
			l.inspect(ctx)
		}
		if t.view {
			l.inspectStart(ctx)
			s.inspectRows(ctx, l)
		} else {
			l.inspectOld(ctx, t.keeps)
		}
	}
	t.missed.Store(false)
}

// inspectPolicy looks whether a view's topic is compacted. While it is not, its events wait.
func (s *Sink) inspectPolicy(ctx context.Context, c *cluster, t *topic) {
	settings, err := c.describe(ctx, t.name)
	if err != nil {
		return
	}
	before := t.unusable.Load()
	if err = checkPolicy(t.name, settings); err == nil {
		t.unusable.Store(nil)
	} else {
		t.unusable.Store(&sinks.Error{Class: sinks.Retry, Err: err})
	}
	for _, l := range t.lanes {
		if err != nil {
			s.blocked.set(l, err, 0)
		} else if before != nil {
			s.blocked.clear(l)
		}
	}
	if before == nil && err != nil {
		s.log.Warn("the topic of a view is not compacted any more; its events wait", "err", err)
	}
}

// confirmLoss is how long after the first sign of a loss a partition is asked again.
const confirmLoss = time.Second

// hasShrunk reports whether the partition ends before what it has acknowledged.
func (l *lane) hasShrunk(ctx context.Context) bool {
	saved := l.savedOffset()
	if saved.offset < 0 {
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
	if !l.started {
		l.next = l.savedOffset().offset
	}
	end, err := l.cluster.offset(ctx, l.topic, l.partition, latest)
	if err != nil || end >= l.next {
		return
	}
	l.reportLost(end)
	l.next = end
	if l.started {
		l.publishSaved()
	} else {
		l.unread = nil
		l.sink.readBack.partitionDone(l.topic, l.partition, unused)
	}
}

// logStart is what is known of where a partition's log began. Inspect owns what is not atomic.
type logStart struct {
	at atomic.Int64 // of a view, when it was last inspected; -1 for not yet
	// Of a topic that is no view. What is stored behind old is younger than half of the topic's
	// retention; young is to take its place. The first batch of the process sets old too.
	old   atomic.Pointer[storedAt]
	young storedAt
}

// storedAt is an offset, and a time in Unix seconds: before it, nothing was stored from there on.
type storedAt struct{ offset, at int64 }

func (s storedAt) age() time.Duration { return time.Since(time.Unix(s.at, 0)) }

// inspectStart reports that records were deleted from a partition of a view: its log begins later
// than before. Compaction does not cause that.
func (l *lane) inspectStart(ctx context.Context) {
	start, err := l.cluster.offset(ctx, l.topic, l.partition, earliest)
	if err != nil {
		return
	}
	before := l.savedStart()
	l.logStart.at.Store(start)
	if before >= 0 && start > before {
		l.reportPurged(before, start)
	}
}

// inspectOld does the same for a topic that is no view. Retention removes records there: those are
// lost that its settings keep. keeps is its retention, 0 where it is not known.
func (l *lane) inspectOld(ctx context.Context, keeps time.Duration) {
	if keeps == 0 || l.savedOld().at == 0 {
		return
	}
	old := l.age(keeps)
	if start, err := l.cluster.offset(ctx, l.topic, l.partition, earliest); err == nil {
		old = l.findDeleted(ctx, old, start)
	}
	l.logStart.old.Store(&old)
}

// age moves the offsets of a known age, and returns the older one.
func (l *lane) age(keeps time.Duration) storedAt {
	s, saved, old := &l.logStart, l.savedOffset(), l.savedOld()
	end := storedAt{saved.offset, time.Now().Unix()}
	switch {
	case saved.offset < old.offset, // it is another topic
		s.young.at == 0 && old.age() > keeps/2: // of an earlier process
		old, s.young = end, end
	case s.young.at == 0:
		s.young = end
	case s.young.age() > keeps/4:
		old, s.young = s.young, end
	}
	return old
}

// findDeleted reports that a log begins behind records that the topic's settings keep. It returns
// what is known of the log behind its start.
func (l *lane) findDeleted(ctx context.Context, old storedAt, start int64) storedAt {
	if old.at == 0 || start <= old.offset || l.sink.config.Timestamps == EventTime {
		return old
	}
	settings, err := l.cluster.describe(ctx, l.topic) // they may have changed
	if err != nil {
		return old
	}
	if old.age() < keptFor(settings)/2 {
		l.reportPurged(old.offset, start)
	}
	return storedAt{start, old.at}
}

func (l *lane) reportPurged(before, start int64) {
	l.sink.losses.Add(sinks.Loss{
		Destination: l.name, Reason: sinks.Purged, Before: uint64(before), Now: uint64(start),
	})
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
