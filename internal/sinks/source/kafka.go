package source

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// topicReader reads the partitions of topics, one behind the other.
type topicReader struct {
	log      *kafka.Log
	pattern  string
	topics   []string
	lanes    []string // nil for all
	raw      bool
	position Position
	progress Progress
	whole    bool
	begun    map[string]bool // lanes whose position was checked
	removed  []Removal
	kept     map[string]kafka.Kept // by topic, of those that were asked for
}

const defaultKafkaPort = "9092"

func openKafka(ctx context.Context, cfg Config, hosts, name string) (Reader, error) {
	c := cfg.Kafka
	c.Brokers = nil
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(host, defaultKafkaPort)
		}
		c.Brokers = append(c.Brokers, host)
	}
	log, err := kafka.NewLog(c, cfg.Patience)
	if err != nil {
		return nil, err
	}
	r := &topicReader{
		log: log, pattern: name, lanes: cfg.Lanes, raw: cfg.Raw, position: clone(cfg.After), whole: true,
		begun: map[string]bool{}, kept: map[string]kafka.Kept{},
	}
	if err := log.Reach(ctx); err != nil {
		r.Close()
		return nil, err
	}
	if r.topics, err = r.matching(ctx, name); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// matching are the topics of a list of names and patterns.
func (r *topicReader) matching(ctx context.Context, list string) (names []string, err error) {
	var all []string
	if strings.Contains(list, "*") {
		if all, err = r.log.Topics(ctx); err != nil {
			return nil, fmt.Errorf("ask for the topics: %w", err)
		}
	}
	for pattern := range strings.SplitSeq(list, ",") {
		if !strings.Contains(pattern, "*") {
			names = append(names, pattern)
			continue
		}
		before := len(names)
		for _, name := range all {
			if matches(pattern, name) {
				names = append(names, name)
			}
		}
		if len(names) == before {
			return nil, fmt.Errorf("no topic is called %s", pattern)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (r *topicReader) Close() { r.log.Close() }

func (r *topicReader) Whole() bool { return r.whole }

func (r *topicReader) Sparse(ctx context.Context) (bool, error) {
	for _, topic := range r.topics {
		if kept, err := r.keeps(ctx, topic); err != nil || !kept.Middle {
			return true, err
		}
	}
	return false, nil
}

func (r *topicReader) Removed() []Removal { return r.removed }

func (r *topicReader) Position() Position { return r.position }

func (r *topicReader) Progress() Progress { return r.progress }

// part is what is to be read of a partition.
type part struct {
	topic      string
	partition  int
	lane       string
	first, end int64
}

func (r *topicReader) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		parts, err := r.parts(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range parts {
			if !r.read(ctx, &parts[i], yield) {
				return
			}
		}
	}
}

// parts asks where the partitions begin and end.
func (r *topicReader) parts(ctx context.Context) (list []part, err error) {
	r.progress = Progress{}
	if strings.Contains(r.pattern, "*") { // some are made with their first event
		topics, err := r.matching(ctx, r.pattern)
		if err != nil {
			return nil, err
		}
		r.topics = union(r.topics, topics)
	}
	for _, topic := range r.topics {
		count, err := r.log.Partitions(ctx, topic)
		if errors.Is(err, kafkago.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("there is no topic %s, or the user may not see it", topic)
		}
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", topic, err)
		}
		for n := range count {
			p := part{topic: topic, partition: n, lane: fmt.Sprintf("%s/%d", topic, n)}
			if r.lanes != nil && !slices.Contains(r.lanes, p.lane) {
				continue
			}
			if p.first, p.end, err = r.log.Bounds(ctx, topic, n); err != nil {
				return nil, fmt.Errorf("partition %s: %w", p.lane, err)
			}
			if err := r.place(ctx, &p); err != nil {
				return nil, err
			}
			r.progress.Total += uint64(p.end - p.first)
			list = append(list, p)
		}
	}
	return list, nil
}

// place finds where to begin in a partition, and notes what is missing before.
func (r *topicReader) place(ctx context.Context, p *part) error {
	at, found := r.position[p.lane]
	switch next := int64(at.Next); {
	case !found:
		r.whole = r.whole && p.first == 0
		if err := r.begins(ctx, p); err != nil {
			return err
		}
	case next > p.end:
		return &RecreatedError{p.topic, fmt.Errorf("partition %s ends at %d: %w", p.lane, p.end, ErrOther)}
	case p.first > next:
		kept, err := r.keeps(ctx, p.topic)
		if err != nil {
			return err
		}
		r.removed = append(r.removed, Removal{p.lane, at.Next, uint64(p.first), kept.All})
	default:
		isThere := p.first < next
		if p.first = next; isThere {
			return r.checkBefore(ctx, p, at)
		}
		return nil
	}
	r.position[p.lane] = Lane{Next: uint64(p.first)}
	return nil
}

// checkBefore looks, once, whether the record before a position is the one that was read there. A
// topic that was recreated may have more records than the one before.
func (r *topicReader) checkBefore(ctx context.Context, p *part, at Lane) error {
	before := int64(at.Next) - 1
	if r.begun[p.lane] || at.Stored.IsZero() {
		return nil
	}
	isOther := false
	_, _, err := r.log.Read(ctx, p.topic, p.partition, before, before+1, func(record *kafka.Record) error {
		isOther = record.Offset == before && record.Damaged == nil && !record.Time.Equal(at.Stored)
		return errStopped
	})
	switch {
	case err != nil && !errors.Is(err, errStopped) && !errors.Is(err, kafkago.OffsetOutOfRange):
		return fmt.Errorf("partition %s, at offset %d: %w", p.lane, before, err)
	case isOther:
		err := fmt.Errorf("partition %s has another record at %d: %w", p.lane, before, ErrOther)
		return &RecreatedError{p.topic, err}
	}
	r.begun[p.lane] = true
	return nil
}

// keeps returns what a topic may remove by itself. It asks once.
func (r *topicReader) keeps(ctx context.Context, topic string) (kafka.Kept, error) {
	kept, known := r.kept[topic]
	if known {
		return kept, nil
	}
	kept, err := r.log.Kept(ctx, topic)
	if err != nil {
		return kept, fmt.Errorf("settings of topic %s: %w", topic, err)
	}
	r.kept[topic] = kept
	return kept, nil
}

// begins notes what somebody has removed from the beginning of a partition.
func (r *topicReader) begins(ctx context.Context, p *part) error {
	if p.first == 0 {
		return nil
	}
	kept, err := r.keeps(ctx, p.topic)
	if kept.All {
		r.removed = append(r.removed, Removal{p.lane, 0, uint64(p.first), true})
	}
	return err
}

// lacks notes holes between records. A compacted topic has some by itself, and a topic whose
// settings the user may not see may be compacted.
func (r *topicReader) lacks(ctx context.Context, p *part, holes []kafka.Hole) error {
	if len(holes) == 0 {
		return nil
	}
	kept, err := r.keeps(ctx, p.topic)
	for _, h := range holes {
		if kept.Middle && h.From < p.end {
			r.removed = append(r.removed, Removal{p.lane, uint64(h.From), uint64(min(h.To, p.end)), true})
		}
	}
	return err
}

var errStopped = errors.New("the reader has enough")

// read reads a partition. It reports whether to continue.
func (r *topicReader) read(ctx context.Context, p *part, yield func(*Message, error) bool) bool {
	m := new(Message)
	for next := p.first; next < p.end; {
		behind, holes, err := r.log.Read(ctx, p.topic, p.partition, next, p.end, func(record *kafka.Record) error {
			if record.Offset >= p.end {
				return nil // it came later
			}
			m.readRecord(record, p, r.raw)
			r.position[p.lane] = Lane{Next: uint64(record.Offset) + 1, Stored: record.Time}
			if !yield(m, nil) {
				return errStopped
			}
			return nil
		})
		if err == nil {
			err = r.lacks(ctx, p, holes)
		}
		switch {
		case errors.Is(err, errStopped):
			return false
		case errors.Is(err, kafkago.OffsetOutOfRange):
			// Retention has removed what was to come.
			first, _, err := r.log.Bounds(ctx, p.topic, p.partition)
			if err != nil || first <= next {
				yield(nil, fmt.Errorf("partition %s, at offset %d of %d: %w", p.lane, next, p.end,
					errors.Join(kafkago.OffsetOutOfRange, err)))
				return false
			}
			r.removed = append(r.removed, Removal{p.lane, uint64(next), uint64(first), false})
			r.whole, behind = false, first
		case err != nil:
			yield(nil, fmt.Errorf("partition %s, at offset %d of %d: %w", p.lane, next, p.end, err))
			return false
		}
		behind = min(behind, p.end)
		r.progress.Read += uint64(behind - next)
		if next = behind; r.position[p.lane].Next != uint64(next) {
			r.position[p.lane] = Lane{Next: uint64(next)}
		}
	}
	return true
}

// readRecord makes an event of a record, or says what else it is.
func (m *Message) readRecord(r *kafka.Record, p *part, isRaw bool) {
	*m = Message{
		Lane: p.lane, Offset: uint64(r.Offset), Stored: r.Time, Key: r.Key, Data: r.Value, Sink: r.Sink(),
		Err: r.Damaged, Damaged: r.Damaged != nil, message: m.message,
	}
	switch {
	case m.Damaged:
		m.Other = fmt.Sprintf("batch in %s that can't be read: %v", p.topic, r.Damaged)
		return
	case isRaw:
		return
	case len(r.Headers) == 0 && r.Value == nil:
		m.Other = "tombstone"
		return
	}
	if m.Event, m.Err = m.message.ReadKafka(r.Each, r.Value).Decode(); m.Err != nil {
		m.Other = "record of " + p.topic
	}
}
