package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
)

// The two ends of a partition's log, as ListOffsets names them.
const (
	earliest int64 = -2
	latest   int64 = -1
)

// offset returns an end of a partition's log (earliest or latest), or the first offset whose record
// has a time, in milliseconds since 1970, or a later one: -1 when there is none.
func (c *cluster) offset(
	ctx context.Context, topic string, partition int, which int64,
) (int64, error) {
	return c.offsetOf(ctx, topic, partition, which, readAll)
}

// isolation is which records of transactions are read.
type isolation int8

const (
	readAll       isolation = 0
	readCommitted isolation = 1
)

// offsetOf is offset. With readCommitted the latest is that of the first open transaction.
func (c *cluster) offsetOf(
	ctx context.Context, topic string, partition int, which int64, level isolation,
) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &listoffsets.Request{
		ReplicaID: -1, IsolationLevel: int8(level),
		Topics: []listoffsets.RequestTopic{{
			Topic: topic,
			Partitions: []listoffsets.RequestPartition{{
				Partition:          int32(partition),
				CurrentLeaderEpoch: c.epoch(topic, partition), Timestamp: which,
			}},
		}},
	})
	if err != nil {
		return 0, err
	}
	answer := res.(*listoffsets.Response)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w to a list-offsets request", errMalformed)
	}
	p := answer.Topics[0].Partitions[0]
	switch {
	case answer.Topics[0].Topic != topic || int(p.Partition) != partition:
		return 0, fmt.Errorf("%w to a list-offsets request: it is about another partition",
			errMalformed)
	case p.ErrorCode != 0:
		return 0, fmt.Errorf("ask for the end of %s/%d: %w", topic, partition,
			brokerError(p.ErrorCode, ""))
	case which < 0 && p.Offset < 0:
		return 0, fmt.Errorf("%w to a list-offsets request: the log ends at %d", errMalformed,
			p.Offset)
	}
	return p.Offset, nil
}

// fetchAnswer is a fetch.Response of one partition, whose records are not decoded.
type fetchAnswer struct {
	fetch.Response // for ApiKey
	topic          string
	partition      int32
	code           int16
	aborted        []abortedTransaction // of these records; only with readCommitted
	records        []byte               // may be cut at the end
}

// abortedTransaction is one whose first record has an offset; a control batch ends it.
type abortedTransaction struct{ producer, first int64 }

// decode reads versions 4 to 11, which are not flexible.
func (a *fetchAnswer) decode(d *decoder) {
	since := func(version int16, size int) {
		if d.version >= version {
			d.number(size)
		}
	}
	since(1, 4) // throttle time
	since(7, 2) // error code of the session
	since(7, 4) // session id
	a.one(d)
	a.topic = string(d.next(d.length(2)))
	a.one(d)
	a.partition, a.code = int32(d.number(4)), int16(d.number(2))
	since(0, 8) // high watermark
	since(4, 8) // last stable offset
	since(5, 8) // log start offset
	if d.version >= 4 {
		const transaction = 16
		list := decoder{data: d.next(d.length(4) * transaction)}
		for len(list.data) > 0 {
			a.aborted = append(a.aborted, abortedTransaction{list.number(8), list.number(8)})
		}
	}
	since(11, 4) // preferred replica
	if size := d.length(4); d.err == nil {
		a.records = d.next(min(size, len(d.data)))
	}
}

func (a *fetchAnswer) one(d *decoder) {
	if n := d.length(4); n != 1 {
		d.fail("it is about %d topics or partitions", n)
	}
}

// page is one answer to a fetch request.
type page struct {
	batches []logBatch
	aborted []abortedTransaction
	next    int64 // the offset behind the page; the requested one when the page is empty
	holes   []Hole
}

// fetch reads the heads of the batches from an offset on. An answer has at most a few MiB, unless
// its first batch is larger.
func (c *cluster) fetch(
	ctx context.Context, topic string, partition int, from int64, level isolation,
) (page, error) {
	const maxBytes = 4 << 20
	epoch := c.epoch(topic, partition)
	res, err := c.askLeader(ctx, topic, partition, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: 100, MinBytes: 1, MaxBytes: maxBytes, SessionEpoch: -1,
		IsolationLevel: int8(level),
		Topics: []fetch.RequestTopic{{
			Topic: topic,
			Partitions: []fetch.RequestPartition{{
				Partition: int32(partition), CurrentLeaderEpoch: epoch, FetchOffset: from,
				LogStartOffset: -1, PartitionMaxBytes: maxBytes,
			}},
		}},
	})
	if err != nil {
		return page{}, err
	}
	answer := res.(*fetchAnswer)
	switch {
	case answer.topic != topic || int(answer.partition) != partition:
		return page{}, fmt.Errorf("%w to a fetch request: it is about another partition",
			errMalformed)
	case answer.code != 0:
		return page{}, fmt.Errorf("read %s/%d from %d: %w", topic, partition, from,
			needing("Read on the topic", kafkago.Error(answer.code)))
	}
	p, err := readPage(answer.records, from)
	p.aborted = answer.aborted
	return p, err
}

// maxPageBatches bounds the batches of an answer that are read; the next page begins behind them.
const maxPageBatches = 50_000

// readPage reads the heads of the batches of an answer. A broker sends whole batches, so the first
// may begin before the requested offset, and cuts the last. The sink may cut the first too, when
// that is very large: then its records can't be read.
func readPage(records []byte, from int64) (p page, err error) {
	defer recoverMalformed(&err)
	p = page{next: from}
	for len(records) > 0 && len(p.batches) < maxPageBatches {
		b, rest, err := readBatch(records)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF), err == nil && b.cut && p.next > from:
			return p, nil
		case err != nil && p.next == from:
			return p, err
		case err != nil:
			return p, nil // it is the first of the next page
		}
		if b.endOffset() > p.next {
			p.addHoles(&b)
			p.next = b.endOffset()
			p.batches = append(p.batches, b)
		}
		records = rest
	}
	return p, nil
}

// addHoles notes what is missing before a batch and in it.
func (p *page) addHoles(b *logBatch) {
	if b.isOld {
		return
	}
	if b.offset > p.next {
		p.holes = append(p.holes, Hole{p.next, b.offset})
	}
	if b.body != nil && b.remaining < b.records {
		p.holes = append(p.holes, Hole{max(b.offset, p.next), b.endOffset()})
	}
}

var _ protocol.Message = (*fetchAnswer)(nil)

// logRange is a part of a lane's log that is read, and how far that has come: a later call
// continues there.
type logRange struct {
	from, end int64
	cut       bool // some of it was gone before it was read
	// since when the log has ended before from, or has nothing there; zero: it has not
	short time.Time
}

// batchVisitor receives what is read of a logRange. ids are those of the batch's messages that this
// sink has sent, of batches for which wantIDs is true. An error ends the reading, and the next call
// reads the same page again.
type batchVisitor struct {
	wantIDs func(batchHead) bool // nil: ids of no batch
	batch   func(b batchHead, ids []string) error
}

// everyBatch is wantIDs for all batches.
func everyBatch(batchHead) bool { return true }

// read reads the rest of a logRange. What retention has deleted meanwhile is left out. So is what
// lies behind the end of the log, when that lasts longer than a deposed leader may not know that it
// is one: then the range is cut.
func (l *lane) read(ctx context.Context, t *logRange, each batchVisitor) error {
	for t.from < t.end {
		p, err := l.page(ctx, t)
		if err != nil {
			return err
		}
		for _, b := range p.batches {
			if err := each.batch(b.batchHead, l.idsIn(&b, t.from, each.wantIDs)); err != nil {
				return err
			}
			t.from = b.endOffset()
		}
		t.from = p.next
	}
	return nil
}

// page reads the next page of a logRange. It may be empty, where something is left out.
func (l *lane) page(ctx context.Context, t *logRange) (p page, err error) {
	err = l.retry(ctx, "read the tail", func() (err error) {
		p, err = l.cluster.fetch(ctx, l.topic, l.partition, t.from, readAll)
		switch {
		case errors.Is(err, kafkago.OffsetOutOfRange):
			p.next, err = l.skipMissing(ctx, t, err)
		case err == nil && p.next <= t.from:
			p.next, err = t.tooShort(fmt.Errorf("%w: nothing is at %d, before the end at %d",
				errMalformed, t.from, t.end))
		case err == nil:
			t.short = time.Time{}
		}
		return err
	})
	if err != nil {
		return page{}, fmt.Errorf("read %s from %d: %w", l.name, t.from, err)
	}
	return p, nil
}

// idsIn returns the ids of a batch's messages that this sink has sent, from an offset on; none of a
// batch whose ids are not wanted. A batch that can't be read is taken for somebody else's: if it is
// this sink's, its events are sent again.
func (l *lane) idsIn(b *logBatch, from int64, wanted func(batchHead) bool) (ids []string) {
	if wanted == nil || !wanted(b.batchHead) || b.isForeign() {
		return nil
	}
	err := b.each(from, func(r *Record) {
		if id := l.sink.messageID(r); id != "" {
			ids = append(ids, id)
		}
	})
	if err != nil {
		l.sink.warnDamaged(l.name, b, err)
		return nil
	}
	return ids
}

// skipMissing returns where to continue after the broker has answered that from is not in the log.
func (l *lane) skipMissing(
	ctx context.Context, t *logRange, outOfRange error,
) (next int64, err error) {
	start, err := l.cluster.offset(ctx, l.topic, l.partition, earliest)
	switch {
	case err != nil:
		return t.from, err
	case start > t.from:
		t.cut = true
		return min(start, t.end), nil
	default:
		return t.tooShort(outOfRange)
	}
}

// tooShort is called when the log ends before the range does. Either this leader is deposed and
// does not know it yet, or its replica lags: then err is returned and the read repeated. After a
// while the records are lost.
func (t *logRange) tooShort(err error) (next int64, _ error) {
	if t.short.IsZero() {
		t.short = time.Now()
	}
	if time.Since(t.short) < leaderTimeout {
		return t.from, err
	}
	t.cut = true
	return t.end, nil
}
