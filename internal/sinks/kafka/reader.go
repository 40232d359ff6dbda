package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// Log reads topics, for who reads what a sink has stored: with the sink's TLS, SASL and bounds on
// what a broker may send. It joins no consumer group and commits nothing. Of transactions it gives
// what was committed. It may not be used concurrently.
type Log struct {
	cluster  *cluster
	patience time.Duration
}

// Record is one record of a topic. Its bytes are valid until the next one.
type Record struct {
	Offset  int64
	Time    time.Time
	Key     []byte // nil for none
	Value   []byte // nil for null
	Headers []Header
	// Damaged says why the batch that begins at the offset can't be read. The other fields are
	// empty.
	Damaged error
}

// Header of a record.
type Header struct {
	Name  string
	Value []byte
}

// Each calls yield with each header.
func (r *Record) Each(yield func(name string, value []byte) bool) {
	for _, h := range r.Headers {
		if !yield(h.Name, h.Value) {
			return
		}
	}
}

// Sink returns the name of the sink that has sent the record, "" for none.
func (r *Record) Sink() string { return r.header(sinkHeader) }

// NewLog makes a Log. It repeats what fails for as long as patience lasts.
func NewLog(c Connection, patience time.Duration) (*Log, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return &Log{newCluster(c, newMetrics(nil)), patience}, nil
}

// Reach asks a broker for anything, once: what is wrong at the start is no matter of patience.
func (l *Log) Reach(ctx context.Context) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, min(l.patience, patience))
	defer cancel()
	_, err := l.cluster.askAny(ctx, &metadata.Request{TopicNames: []string{}})
	return explainReading(err)
}

// Close ends the connections.
func (l *Log) Close() { l.cluster.close() }

// retry calls try until it succeeds, fails for a reason that a retry does not change, or patience
// is over. Between attempts it asks where the topic's partitions are.
func (l *Log) retry(ctx context.Context, topic string, try func() error) error {
	const pause = 200 * time.Millisecond
	for until := time.Now().Add(l.patience); ; {
		err := try()
		missing := errors.Is(err, kafkago.UnknownTopicOrPartition)
		if outcome := classify(err); err == nil || missing || outcome != resend ||
			errors.Is(err, kafkago.OffsetOutOfRange) {
			return explainReading(err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Now().After(until) {
			return err
		}
		_ = ratelimit.Sleep(ctx, pause)
		if topic != "" {
			_, _ = l.cluster.refresh(ctx, topic) // what fails here, try reports
		}
	}
}

// explainReading says what to do about an error that only an operator can remove.
func explainReading(err error) error {
	if code, _ := errors.AsType[kafkago.Error](err); code == kafkago.TopicAuthorizationFailed {
		return fmt.Errorf("%w; grant the user Read and Describe on the topic", err)
	}
	return explain(err)
}

// Kept is what a topic may remove by itself.
type Kept struct {
	// All: nothing. Middle: only its oldest records.
	All, Middle bool
}

// Kept reads what a topic removes by itself. Where the user may not see the topic's settings, it
// may be anything.
func (l *Log) Kept(ctx context.Context, topic string) (k Kept, err error) {
	err = l.retry(ctx, topic, func() error {
		settings, err := l.cluster.describe(ctx, topic)
		k.Middle = err == nil && cmp.Or(settings[cleanupPolicy], "delete") == "delete"
		k.All = k.Middle && settings["retention.ms"] == "-1" && cmp.Or(settings["retention.bytes"], "-1") == "-1"
		return err
	})
	if code, _ := errors.AsType[kafkago.Error](err); code == kafkago.TopicAuthorizationFailed {
		return k, nil
	}
	return k, err
}

// Topics are the names of all topics that the user may see.
func (l *Log) Topics(ctx context.Context) (names []string, err error) {
	err = l.retry(ctx, "", func() error {
		res, err := l.cluster.askAny(ctx, &metadata.Request{}) // of all
		if err != nil {
			return err
		}
		names = nil
		for _, t := range res.(*metadata.Response).Topics {
			if !t.IsInternal {
				names = append(names, t.Name)
			}
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Partitions is how many partitions a topic has.
func (l *Log) Partitions(ctx context.Context, topic string) (count int, err error) {
	err = l.retry(ctx, "", func() error {
		found, err := l.cluster.refresh(ctx, topic)
		count = len(found.leaders)
		return err
	})
	return count, err
}

// Bounds are the first offset of a partition, and the one behind the last record that is committed.
func (l *Log) Bounds(
	ctx context.Context, topic string, partition int,
) (first, end int64, err error) {
	err = l.retry(ctx, topic, func() (err error) {
		first, end, err = l.bounds(ctx, topic, partition)
		return err
	})
	return first, end, err
}

func (l *Log) bounds(
	ctx context.Context, topic string, partition int,
) (first, end int64, err error) {
	if first, err = l.cluster.offset(ctx, topic, partition, earliest); err == nil {
		end, err = l.cluster.offsetOf(ctx, topic, partition, latest, readCommitted)
	}
	return first, end, err
}

// errLacking: the broker does not have what it had.
var errLacking = errors.New("the broker lacks records")

// Hole is a stretch of a partition in which offsets have no record: from one up to the one before
// another. Transactions leave none, since the log has what was aborted, and their ends.
type Hole struct{ From, To int64 }

// Read gives the next records of a partition from an offset on, the holes between them, and the
// offset to continue with: not behind end, where the log ended before. It may give none, where
// transactions were aborted or compaction has removed some. An error of yield ends it.
//
// What is missing up to end leaves an empty page, or an offset that is out of range where the log
// has become shorter. Both also come of a leader that was deposed or lags: so they are asked for
// again, for as long as such a leader may not know it.
func (l *Log) Read(
	ctx context.Context, topic string, partition int, from, end int64, yield func(*Record) error,
) (next int64, holes []Hole, err error) {
	var p page
	began := time.Now()
	err = l.retry(ctx, topic, func() (err error) {
		p, err = l.cluster.fetch(ctx, topic, partition, from, readCommitted)
		isLacking := err == nil && p.next <= from
		if errors.Is(err, kafkago.OffsetOutOfRange) {
			first, _, boundsErr := l.bounds(ctx, topic, partition)
			isLacking = boundsErr == nil && first <= from
		}
		switch {
		case !isLacking:
			return err
		case time.Since(began) < min(l.patience, leaderTimeout):
			return fmt.Errorf("%w: nothing is at %d, before the end at %d", errLacking, from, end)
		}
		p = page{next: end, holes: []Hole{{from, end}}}
		return nil
	})
	if err != nil {
		return from, nil, err
	}
	open := newAborted(p.aborted)
	for i := range p.batches {
		b := &p.batches[i]
		if open.hides(b) {
			continue
		}
		if err := b.eachFull(from, yield); err != nil {
			return from, nil, err
		}
	}
	return p.next, p.holes, nil
}

// abortedTransactions follows the transactions of a page that were aborted.
type abortedTransactions struct {
	list []abortedTransaction // not begun yet, by their first offsets
	open map[int64]bool       // producers with one that has begun
}

func newAborted(list []abortedTransaction) *abortedTransactions {
	slices.SortFunc(list,
		func(a, b abortedTransaction) int { return int(min(max(a.first-b.first, -1), 1)) })
	return &abortedTransactions{list: list, open: map[int64]bool{}}
}

// hides reports whether a batch has no records for a reader: it ends a transaction, or is of one
// that was aborted.
func (a *abortedTransactions) hides(b *logBatch) bool {
	for len(a.list) > 0 && a.list[0].first <= b.offset {
		a.open[a.list[0].producer] = true
		a.list = a.list[1:]
	}
	if b.attributes&controlFlag != 0 {
		delete(a.open, b.producer) // whichever way its transaction ended
		return true
	}
	return b.attributes&transactionalFlag != 0 && a.open[b.producer]
}

// foreignRecords are the bounds of what others have sent too: they make larger batches than the
// sink, and all of a record is read.
var foreignRecords = recordBounds{records: 1_000_000, text: maxInflated, value: maxInflated}

// eachFull yields all of the records from an offset on.
func (b *logBatch) eachFull(from int64, yield func(*Record) error) error {
	var failed error
	err := b.read(foreignRecords, func(r *Record) bool {
		if r.Offset >= from {
			failed = yield(r)
		}
		return failed == nil
	})
	if failed == nil && err != nil {
		failed = yield(&Record{Offset: b.offset, Damaged: err})
	}
	return failed
}
