package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// readback is the reading of a partition from a saved place on, and how far it has come: a later
// call continues there.
type readback struct {
	saved    place
	deadline time.Time // until then a log that ends before the place may be a deposed leader's
	// after the deadline: true, the log is another one; false, the lane reads it later
	final    bool
	begun    bool // logRange is known
	logRange logRange
	resume   place // by what was read
}

// readBack reads a lane's partition from a place on; from a little before the time of the saved
// position when the place is unused. It returns the place at which the lane resumes, unused when
// the log does not show it.
func (l *lane) readBack(ctx context.Context, r *readback, found func(id string)) (place, error) {
	if !r.begun {
		if err := l.beginReadback(ctx, r); err != nil {
			return unused, err
		}
	}
	err := l.read(ctx, &r.logRange, batchVisitor{wantIDs: everyBatch, batch: func(b batchHead,
		ids []string,
	) error {
		for _, id := range ids {
			found(id)
		}
		r.resume = r.resume.after(b)
		return nil
	}})
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
	r.begun = true
	return nil
}

// after returns where the producer of a place continues after a batch of the log: with the next
// sequence number. The offset stays at the end of what is read: the producer's next batch will lie
// there, or behind it.
func (p place) after(b batchHead) place {
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
	if l.sink.config.Records.Timestamps == EventTime {
		return max(start, end-ofEventTime), nil
	}
	since := l.sink.recall.saved.Time.Add(-clockSkew).UnixMilli()
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
		if ratelimit.Sleep(ctx, 100*time.Millisecond) != nil {
			return 0, 0, errCallerGone
		}
		_, _ = l.cluster.refresh(ctx, l.topic) // if it fails, bounds reports the error
	}
}

// readUnread reads the partition before the lane's first batch, since Recall could not. Messages
// that it finds may be queued in the publisher already, so the lane remembers them too.
func (l *lane) readUnread(ctx context.Context) error {
	if l.unread == nil {
		l.unread = &readback{
			saved:    l.sink.recall.saved.place(l.topic, l.partition),
			deadline: time.Now().Add(leaderTimeout), final: true,
		}
	}
	resume, err := l.readBack(ctx, l.unread, func(id string) {
		l.storedIDs.add(id)
		l.sink.recall.found(id)
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
	l.sink.recall.partitionDone(l.topic, l.partition, resume)
	return nil
}

// messageID is the id of a record that this sink has sent, "" for another.
func (s *Sink) messageID(r *record) string {
	if r.sink != s.config.Name {
		return ""
	}
	id := r.id
	if id == "" && r.informer != "" {
		id = structuredID(r.value)
	}
	if id == "" {
		return ""
	}
	return r.informer + "/" + id
}

// structuredID is the id of an event in JSON, of which only the beginning is given; "" for none.
func structuredID(value []byte) string {
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
	s.recall.mu.Lock()
	again := time.Since(s.recall.warned) < warnEvery
	if !again {
		s.recall.warned = time.Now()
	}
	s.recall.mu.Unlock()
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
