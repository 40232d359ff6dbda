package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// readback is the reading of a partition from a saved offset on, and how far it has come: a later
// call continues there.
type readback struct {
	saved    savedOffset
	deadline time.Time // until then a log that ends before the saved offset may be a deposed leader's
	// shortSince is when a log was first seen to end there; zero for never.
	shortSince time.Time
	// after the deadline: true, the log is another one; false, the lane reads it later
	final    bool
	begun    bool // logRange is known
	logRange logRange
	resume   savedOffset // by what was read
	tail     viewTail
}

// viewTail is what lies behind the saved offset in a partition of a view. Compaction may have
// removed the older versions of an object. They are sent again, and so the newest one must be too:
// else the view ends with an older one.
type viewTail struct {
	ids       []string
	next      int64 // the offset behind the last batch
	isThinned bool  // records were removed, or it is too long
}

// maxViewTail bounds the ids of a viewTail, as the publisher bounds those that it remembers.
const maxViewTail = 1 << 20

func (t *viewTail) add(b *batchHead, ids []string) {
	t.isThinned = t.isThinned || b.offset > t.next || b.remaining < b.records ||
		len(t.ids)+len(ids) > maxViewTail
	t.next = b.endOffset()
	if t.ids = append(t.ids, ids...); t.isThinned {
		t.ids = nil
	}
}

// readBack reads a lane's partition from a saved offset on; from a little before the time of the
// saved position when the saved offset is unused. It returns the saved offset at which the lane
// resumes, unused when the log does not show it.
func (l *lane) readBack(ctx context.Context, r *readback, found func(id string)) (savedOffset, error) {
	if !r.begun {
		if err := l.beginReadback(ctx, r); err != nil {
			return unused, err
		}
	}
	err := l.read(ctx, &r.logRange, batchVisitor{wantIDs: everyBatch, batch: func(b batchHead,
		ids []string,
	) error {
		r.resume = r.resume.after(b)
		if l.sink.config.View {
			r.tail.add(&b, ids)
			return nil
		}
		for _, id := range ids {
			found(id)
		}
		return nil
	}})
	if err == nil && !r.tail.isThinned {
		for _, id := range r.tail.ids {
			found(id)
		}
	}
	if err != nil || r.logRange.cut {
		return unused, err
	}
	return r.resume, nil
}

// beginReadback finds the part of the log that is to be read.
func (l *lane) beginReadback(ctx context.Context, r *readback) error {
	start, end, err := l.boundsPast(ctx, r)
	if err != nil {
		return err
	}
	from := r.saved.offset
	if end < from {
		l.next, r.saved.old = from, storedAt{}
		l.reportLost(end)
	} else {
		r.saved.old = l.findDeleted(ctx, r.saved.old, start)
	}
	if from < 0 {
		if from, err = l.startBySavedTime(ctx, start, end); err != nil {
			return err
		}
	}
	r.logRange = logRange{from: max(start, from), end: end, cut: start > from || from > end}
	if r.resume = unused; r.saved.producer >= 0 {
		r.resume = r.saved
		r.resume.offset = end
	}
	r.tail = viewTail{next: r.logRange.from, isThinned: r.logRange.cut}
	r.begun = true
	return nil
}

// after returns where the producer of a saved offset continues after a batch of the log: with the
// next sequence number. The offset stays at the end of what is read: the producer's next batch will
// lie there, or behind it.
func (p savedOffset) after(b batchHead) savedOffset {
	if p.producer >= 0 && b.producer == p.producer && b.epoch >= p.epoch {
		p.epoch, p.sequence = b.epoch, sequenceAfter(b.sequence, b.records)
	}
	return p
}

// startBySavedTime returns where to read a partition that is missing in the saved position: by the
// time of its records. With EventTime, records do not have the time of their writing: then the last
// 10,000 are read.
func (l *lane) startBySavedTime(ctx context.Context, start, end int64) (from int64, err error) {
	const ofEventTime = 10_000
	if l.sink.config.Timestamps == EventTime {
		return max(start, end-ofEventTime), nil
	}
	since := l.sink.readBack.saved.Time.Add(-clockSkew).UnixMilli()
	err = l.retry(ctx, "read back", func() (err error) {
		from, err = l.cluster.offset(ctx, l.topic, l.partition, since)
		return err
	})
	if err == nil && from < 0 {
		from = end // no record is that late
	}
	return from, err
}

// boundsPast returns the two ends of the lane's log, which is known to have reached the saved
// offset. A log that still ends before it at the deadline is another one: the topic was recreated,
// or has lost records.
func (l *lane) boundsPast(ctx context.Context, r *readback) (start, end int64, err error) {
	for {
		start, end, err = l.bounds(ctx)
		switch late := time.Now().After(r.deadline); {
		case err != nil || end >= r.saved.offset || late && r.final:
			return start, end, err
		case late:
			return 0, 0, fmt.Errorf("%w: the log of %s ends at %d, and had come to %d", errGaveUp,
				l.name, end, r.saved.offset)
		}
		if r.shortSince.IsZero() {
			r.shortSince = time.Now()
		}
		if ratelimit.Sleep(ctx, 100*time.Millisecond) != nil {
			return 0, 0, errCallerGone
		}
		_, _ = l.cluster.refresh(ctx, l.topic) // if it fails, bounds reports the error
	}
}

// readUnread reads the partition before the lane's first batch, since ReadBack could not. Messages
// that it finds may be queued in the publisher already, so the lane remembers them too.
func (l *lane) readUnread(ctx context.Context) error {
	if l.unread == nil {
		since := l.sink.readBack.shortSince(l.topic, l.partition)
		if since.IsZero() {
			since = time.Now()
		}
		l.unread = &readback{
			saved:    l.sink.readBack.saved.lookup(l.topic, l.partition),
			deadline: since.Add(leaderTimeout), final: true,
		}
	}
	resume, err := l.readBack(ctx, l.unread, func(id string) {
		l.storedIDs.insert(id)
		l.sink.readBack.found(id)
	})
	switch {
	case unreadable(err):
		l.sink.warnUnreadable(l.topic, err)
	case err != nil:
		return err
	default:
		l.sink.log.Info("read back a partition that could not be read at the start", "lane", l.name,
			"messages", len(l.storedIDs.anyOrder))
	}
	l.unread = nil
	l.sink.readBack.partitionDone(l.topic, l.partition, resume)
	return nil
}

// messageID is the id of a record that this sink has sent, "" for another.
func (s *Sink) messageID(r *Record) string {
	if r.header(sinkHeader) != s.config.Name {
		return ""
	}
	id, informer := r.header(idHeader), r.header(informerHeader)
	if id == "" && informer != "" {
		id = documentID(r.Value)
	}
	if id == "" {
		return ""
	}
	return informer + "/" + id
}

// documentID is the id of an event in JSON, of which only the beginning is given; "" for none.
func documentID(value []byte) string {
	in := jsontext.NewDecoder(bytes.NewReader(value))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	for {
		name, err := in.ReadToken()
		if err != nil || name.Kind() != '"' {
			return ""
		}
		if name.String() != "id" {
			if in.SkipValue() != nil {
				return ""
			}
			continue
		}
		if id, err := in.ReadToken(); err == nil && id.Kind() == '"' {
			return id.String()
		}
		return ""
	}
}

// warnDamaged reports a batch that should be this sink's and can't be read. Whoever may write to
// the topic can create many: the log gets at most one line in warnEvery.
func (s *Sink) warnDamaged(lane string, b *logBatch, err error) {
	s.metrics.damaged.Inc()
	s.readBack.mu.Lock()
	again := time.Since(s.readBack.warned) < warnEvery
	if !again {
		s.readBack.warned = time.Now()
	}
	s.readBack.mu.Unlock()
	if again {
		return
	}
	args := []any{"lane", lane, "offset", b.offset, "producer_id", b.producer, "err", err}
	if stack := event.StackOf(err); stack != "" {
		args = append(args, "stack", stack)
	}
	s.log.Warn("a batch can't be read back, and is taken for another producer's; if it is this "+
		"sink's, its events are sent again, with the same ids", args...)
}

// maxStoredIDs bounds the ids that a lane remembers: records that others write to the topic may
// look like its own.
const maxStoredIDs = 100_000

// storedIDs are the ids of messages that are stored, and that callers will send again because they
// got no answer. Whoever holds the lane owns them.
type storedIDs struct {
	inOrder  []string // of pending batches: they come first and in order, see skipInOrder
	anyOrder map[string]bool
}

// addInOrder adds the messages of a batch that an earlier call left pending.
func (s *storedIDs) addInOrder(ids []string) { s.inOrder = append(s.inOrder, ids...) }

// insert adds messages that may come at any time. Those beyond the bound are stored twice, with the
// same ids.
func (s *storedIDs) insert(ids ...string) {
	if s.anyOrder == nil {
		s.anyOrder = make(map[string]bool, len(ids))
	}
	for _, id := range ids {
		if len(s.anyOrder) < maxStoredIDs {
			s.anyOrder[id] = true
		}
	}
}

// skip answers the messages that are known to be stored, and returns the others.
func (s *storedIDs) skip(messages []*sinks.Message) []*sinks.Message {
	return s.skipAnyOrder(s.skipInOrder(messages))
}

// skipInOrder answers the messages of pending batches. They come first and in order where callers
// send unanswered messages again before any other of the lane. Dead letters have several senders,
// so theirs may come later.
func (s *storedIDs) skipInOrder(messages []*sinks.Message) []*sinks.Message {
	for len(s.inOrder) > 0 && len(messages) > 0 {
		if s.inOrder[0] != messages[0].Event.MessageID() {
			s.insert(s.inOrder...)
			s.inOrder = nil
			break
		}
		messages[0].Err = nil
		s.inOrder, messages = s.inOrder[1:], messages[1:]
	}
	return messages
}

// skipAnyOrder answers the other messages that are stored. A message with a Run must be stored
// again.
func (s *storedIDs) skipAnyOrder(messages []*sinks.Message) []*sinks.Message {
	if len(s.anyOrder) == 0 {
		return messages
	}
	left := make([]*sinks.Message, 0, len(messages))
	for _, m := range messages {
		if id := m.Event.MessageID(); s.anyOrder[id] && m.Event.Run == "" {
			delete(s.anyOrder, id)
			m.Err = nil
		} else {
			left = append(left, m)
		}
	}
	return left
}

var _ sinks.EarlierRunFinder = (*Sink)(nil)

// FindEarlierRun reads the last records of each partition of the topic, if that exists.
func (s *Sink) FindEarlierRun(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (found bool, err error) {
	c := s.connected()
	if c == nil {
		return false, asReconnect(errNotOpen)
	}
	name := string(s.topic.Append(nil, about, event.AppendTopicPart))
	if checkTopic(name) != nil {
		return false, nil
	}
	l, err := c.refresh(ctx, name)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return false, nil
	}
	const looks = 32 // a topic with more partitions is sure to have something in these
	for p := 0; p < min(len(l.leaders), looks) && err == nil && !found; p++ {
		found, err = s.lastIs(ctx, c, name, p, ours)
	}
	if err != nil {
		return false, sinkError(ctx, fmt.Errorf("look at the last records of %s: %w", name, err))
	}
	return found, nil
}

// lastIs passes to ours the records in the last batches of a partition. It reads some offsets back:
// the last ones may belong to control records, or be compacted away.
func (s *Sink) lastIs(
	ctx context.Context, c *cluster, topic string, partition int, ours func(sinks.Trace) bool,
) (found bool, err error) {
	const back = 100
	l := newLane(s, c, topic, partition, 0)
	start, end, err := l.bounds(ctx)
	if err != nil || start >= end {
		return false, err
	}
	p, err := c.fetch(ctx, topic, partition, max(start, end-back), readAll)
	if err != nil {
		return false, err
	}
	for _, b := range p.batches {
		if b.isForeign() {
			continue
		}
		err := b.each(0, func(r *Record) {
			if id := s.messageID(r); !found && id != "" && r.Key != nil {
				found = ours(sinks.Trace{MessageID: id, PartitionKey: string(r.Key)})
			}
		})
		if err != nil {
			s.warnDamaged(l.name, &b, err)
		}
	}
	return found, nil
}
